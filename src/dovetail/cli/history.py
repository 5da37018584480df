"""`dovetail history`: ended jobs, recorded events, and exports for the simulator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from dovetail.cli.cluster_options import (
    asks_a_cluster,
    counted,
    looking_back,
    say_json,
    shown_option,
)
from dovetail.cli.job_selection import states_of
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.live.client.client import Client

REPORTED = ("measured", "foreseen")
"""Events that running jobs report periodically."""


@click.command("history")
@click.argument("job", default="")
@click.option("--events", is_flag=True, help="List the events of all jobs and nodes.")
@click.option("--all", "everything", is_flag=True, help="Include reports of progress.")
@click.option("--state", "-t", "states", multiple=True, help="Only these states, e.g. FAILED,TO.")
@click.option("--user", "-u", default="", help="Only jobs of this user.")
@click.option("--name", "-n", default="", help="Only jobs with this name.")
@click.option("--since", "-S", default="", help="Only jobs that ended within, e.g. 2h or 1d.")
@shown_option(
    "--limit", default=200, type=click.IntRange(1, 100_000), help="Number of jobs to list."
)
@click.option("--export", type=click.Path(path_type=Path), help="Write the event log to a file.")
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
    """List ended jobs, the latest first, or all events of one JOB.

    --export writes an event log for `dovetail replay`, --trace a trace for `dovetail simulate`.
    Both read the folder of the cluster and need no running controller.

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
        raise click.UsageError("--state, --user, --name and --since select jobs, not events")
    elif job or events:
        looking_back(home, lambda client: _facts(client, job, everything, as_json))
    else:
        looking_back(
            home,
            lambda client: _ended(
                client, as_json, states=states, user=user, name=name, since=since, limit=limit
            ),
        )


def _export(home: Path, export: Path | None, trace: Path | None, as_json: bool) -> None:
    from dovetail.cli.replay import print_guessed
    from dovetail.replaying.live_log import export_log, export_trace

    summary: dict[str, object] = {}
    if export is not None:
        lines = export_log(home.expanduser(), export)
        summary |= {"export": str(export), "lines": lines}
    if trace is not None:
        exported = export_trace(home.expanduser(), trace)
        summary |= {"trace": str(trace), "jobs": exported.jobs, "guessed": exported.guessed}
    if as_json:
        click.echo(json.dumps(summary))
        return
    if export is not None:
        click.echo(f"{counted(lines, 'line')} written to {export}")
    if trace is not None:
        click.echo(f"{counted(exported.jobs, 'job')} written to {trace}")
        print_guessed(exported.guessed)


def _facts(client: Client, job: str, everything: bool, as_json: bool) -> None:
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
            click.echo(line if as_json else _fact_text(fact, event.called))


def _fact_text(fact: Mapping[str, object], called: str) -> str:
    """Returns time, event, job (its name is `called`, empty for none) and details of a record."""
    from dovetail.cli.cluster_tables import span

    job = f" job {called}" if called else ""
    details = ", ".join(f"{k} {_text(k, v)}" for k, v in fact.items() if k not in ("t", "e", "job"))
    t_s = cast(float, fact.get("t", 0.0))
    return f"{span(float(t_s)):>12}  {fact.get('e')}{job}  {details}".rstrip()


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "on":
        spans = cast(Iterable[tuple[int, int]], value)
        return " + ".join(f"{gpus} on node {node}" for node, gpus in spans)
    if name == "gpu_ids":
        ids_by_node = cast(Iterable[Iterable[int]], value)
        return "+".join(",".join(map(str, ids)) for ids in ids_by_node)
    if name == "reasons":
        reasons = cast(Iterable[Mapping[str, object]], value)
        codes = Counter(str(reason.get("code")) for reason in reasons)
        return " ".join(code if n == 1 else f"{code} ({n})" for code, n in codes.items()) or "-"
    if isinstance(value, int | float):
        return _number(name, value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _number(name: str, value: float) -> str:
    from dovetail.cli.cluster_tables import span

    if name.endswith("_s") or name == "from":
        return span(value)
    if name.endswith("_bytes"):
        return f"{value / 2**30:.1f}G"
    return f"{value:.2f}" if name in ("rate", "scale") else f"{value:g}"


def _ended(
    client: Client,
    as_json: bool,
    *,
    states: tuple[str, ...],
    user: str,
    name: str,
    since: str,
    limit: int,
) -> None:
    from dovetail.live.jobs.lifecycle import TERMINAL, State

    wanted_states = states_of(states) or tuple(sorted(TERMINAL))
    for state in wanted_states:
        if state in set(State) - TERMINAL:
            raise InputError(
                f"--state {state}", "such jobs have not ended", "dovetail ls lists them"
            )
    listing = client.jobs(
        states=wanted_states,
        user=user,
        name=name,
        since_s=_since_s(client, since) if since else 0.0,
        limit=limit,
    )
    if as_json:
        say_json(listing)
        return
    if not listing.jobs:
        is_filtered = states or user or name or since
        click.echo("no such job has ended" if is_filtered else "no job has ended yet")
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import ended_lines

    terminal.say(ended_lines(listing.jobs, terminal.width()))
    if listing.more:
        click.echo("and earlier jobs (--limit shows more)")


def _since_s(client: Client, duration: str) -> float:
    """Returns the cluster time of a duration before now. Raises InputError."""
    from dovetail.jobspec.values import span

    try:
        return client.ping().now_s - span(duration)
    except ValueError as error:
        raise InputError("--since", str(error)) from None
