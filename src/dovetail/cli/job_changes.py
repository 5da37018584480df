"""`dovetail cancel`, `requeue`, `hold` and `release`: what is done to jobs by their owner."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json
from dovetail.cli.job_numbers import jobs_of
from dovetail.cli.job_states import states_of
from dovetail.live.jobs.lifecycle import TERMINAL

LIVE_MAX, SAID_MAX = 100_000, 50

DONE = {
    "cancel": "will be cancelled",
    "requeue": "will wait again",
    "hold": "will be held",
    "release": "will be released",
}


@click.command("cancel")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All jobs that wait or run.")
@click.option("--state", "-t", "states", multiple=True, help="Of all only these, as in PENDING.")
@click.option("--user", "-u", default="", help="Of all only jobs of this user.")
@click.option("--name", "-n", default="", help="Of all only jobs of this name.")
@asks_a_cluster
def cancel(
    home: Path,
    as_json: bool,
    jobs: tuple[str, ...],
    everything: bool,
    states: tuple[str, ...],
    user: str,
    name: str,
) -> int:
    """Cancel jobs: those that wait at once, those that run within their grace.

    \b
    Example:
      dovetail cancel 12 14_3 15_[0-4,7]
      dovetail cancel --state PENDING --name train
      dovetail cancel --all
    """
    if bool(jobs) == bool(everything or states or user or name):
        raise click.UsageError("name jobs, or say --all, --state, --user or --name")
    chosen = not jobs
    if chosen:
        wanted = states_of(states)
        found = client_of(home).jobs(states=wanted, user=user, name=name, limit=LIVE_MAX)
        jobs = tuple(str(row.job) for row in found.jobs if row.state not in TERMINAL)
    if jobs:
        return _change("cancel", home, jobs, as_json, chosen=chosen)
    click.echo('{"jobs": [], "left": []}' if as_json else "no such jobs wait or run")
    return 0


@click.command("requeue")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def requeue(home: Path, as_json: bool, jobs: tuple[str, ...]) -> int:
    """Let jobs wait again, whether they run or are over.

    \b
    Example:
      dovetail requeue 12
    """
    return _change("requeue", home, jobs, as_json)


@click.command("hold")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def hold(home: Path, as_json: bool, jobs: tuple[str, ...]) -> int:
    """Keep waiting jobs from starting, until they are released.

    \b
    Example:
      dovetail hold 12
    """
    return _change("hold", home, jobs, as_json)


@click.command("release")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def release(home: Path, as_json: bool, jobs: tuple[str, ...]) -> int:
    """Let held jobs start again when it is their turn.

    \b
    Example:
      dovetail release 12
    """
    return _change("release", home, jobs, as_json)


def _change(
    verb: str, home: Path, jobs: tuple[str, ...], as_json: bool, *, chosen: bool = False
) -> int:
    changed = client_of(home).change(verb, *jobs_of(jobs))
    if as_json:
        say_json(changed)
    elif len(changed.jobs) > SAID_MAX:
        click.echo(f"{len(changed.jobs)} jobs {DONE[verb]}")
    else:
        for job in changed.called:
            click.echo(f"job {job} {DONE[verb]}")
    if chosen:
        # Of those that were chosen by their state some may be over by now, which is as good.
        return 0
    for left in changed.left:
        click.echo(f"dovetail: job {left.job}: {left.why}", err=True)
    return 1 if changed.left else 0
