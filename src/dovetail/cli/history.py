"""`dovetail history`: what has been, in a table, as facts, or as files for other commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, counted, looking_back, say_json
from dovetail.cli.job_states import states_of
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.live.client.client import Client

REPORTED = ("measured", "foreseen")
"""Facts that jobs in training bring forth again and again."""


@click.command("history")
@click.argument("job", default="")
@click.option("--events", is_flag=True, help="What happened to all jobs and nodes.")
@click.option("--all", "everything", is_flag=True, help="With the progress that jobs reported.")
@click.option("--state", "-t", "states", multiple=True, help="Only these, as in FAILED or F,TO.")
@click.option("--user", "-u", default="", help="Only jobs of this user.")
@click.option("--name", "-n", default="", help="Only jobs of this name.")
@click.option("--since", "-S", default="", help="Only those that ended within, as in 2h or 1d.")
@click.option(
    "--limit",
    default=200,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="At most so many jobs that are over.",
)
@click.option("--export", type=click.Path(path_type=Path), help="Write the log, as for replay.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write ended jobs as a trace.")
@asks_a_cluster
def history(
    home: Path,
    as_json: bool,
    job: str,
    events: bool,
    everything: bool,
    states: tuple[str, ...],
    user: str,
    name: str,
    since: str,
    limit: int,
    export: Path | None,
    trace: Path | None,
) -> None:
    """List the jobs that are over, the newest end first; of one JOB, all that happened to it.

    --export and --trace read the cluster's folder, whether a controller runs or not. What they
    write is read by `dovetail replay` and by `dovetail simulate`.

    \b
    Example:
      dovetail history
      dovetail history --state FAILED,TIMEOUT --since 1d
      dovetail history 12
      dovetail history --export events.jsonl --trace jobs.csv
    """
    if export is not None or trace is not None:
        _export(home, export, trace, as_json)
    elif (job or events) and (states or user or name or since):
        raise click.UsageError("--state, --user, --name and --since choose among jobs, not events")
    elif job or events:
        looking_back(home, lambda client: _facts(client, job, everything, as_json))
    else:
        wanted = Wanted(states, user, name, since, limit)
        looking_back(home, lambda client: _ended(client, wanted, as_json))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of the jobs that are over."""

    states: tuple[str, ...]
    user: str
    name: str
    since: str
    limit: int


def _export(home: Path, export: Path | None, trace: Path | None, as_json: bool) -> None:
    from dovetail.cli.replay import say_guessed
    from dovetail.replaying.live_log import export_log, export_trace

    said: dict[str, object] = {}
    if export is not None:
        lines = export_log(home.expanduser(), export)
        said |= {"export": str(export), "lines": lines}
    if trace is not None:
        made = export_trace(home.expanduser(), trace)
        said |= {"trace": str(trace), "jobs": made.jobs, "guessed": made.guessed}
    if as_json:
        click.echo(json.dumps(said))
        return
    if export is not None:
        click.echo(f"{counted(lines, 'line')} written to {export}")
    if trace is not None:
        click.echo(f"{counted(made.jobs, 'job')} written to {trace}")
        say_guessed(made.guessed)


def _facts(client: Client, job: str, everything: bool, as_json: bool) -> None:
    from dovetail.cli.fact_text import fact_text
    from dovetail.live.server.protocol import ENDLESS_S

    for event in client.history(job):
        try:
            fact = json.loads(event.line)
            fact["e"] = str(fact["e"])
        except (ValueError, KeyError, TypeError):
            click.echo(f"dovetail: line {event.number} of the log is damaged", err=True)
            continue
        if everything or fact["e"] not in REPORTED:
            if (fact.get("length_s") or 0.0) > ENDLESS_S:
                fact["length_s"] = None
            line = json.dumps(fact, separators=(",", ":"))
            click.echo(line if as_json else fact_text(fact, event.called))


def _ended(client: Client, wanted: Wanted, as_json: bool) -> None:
    from dovetail.live.jobs.lifecycle import TERMINAL, State

    states = states_of(wanted.states) or tuple(sorted(TERMINAL))
    for state in states:
        if state in set(State) - TERMINAL:
            raise InputError(f"--state {state}", "such jobs are not over", "dovetail ls lists them")
    found = client.jobs(
        states=states,
        user=wanted.user,
        name=wanted.name,
        since_s=_since_s(client, wanted.since) if wanted.since else 0.0,
        limit=wanted.limit,
    )
    if as_json:
        say_json(found)
        return
    if not found.jobs:
        asked = wanted.states or wanted.user or wanted.name or wanted.since
        click.echo("no such job is over" if asked else "no job is over yet")
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import ended_lines

    terminal.say(ended_lines(found.jobs, terminal.width()))
    if found.more:
        click.echo("and older ones (--limit shows more)")


def _since_s(client: Client, said: str) -> float:
    """Returns the cluster's time so long ago. Raises InputError."""
    from dovetail.jobspec.values import span

    try:
        return client.ping().now_s - span(said)
    except ValueError as error:
        raise InputError("--since", str(error)) from None
