"""`dovetail cancel`, `requeue`, `hold` and `release`: what is done to jobs by their owner."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json

LIVE_MAX = 100_000

DONE = {
    "cancel": "will be cancelled",
    "requeue": "will wait again",
    "hold": "is held",
    "release": "is released",
}


@click.command("cancel")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All jobs that wait or run.")
@asks_a_cluster
def cancel(home: Path, as_json: bool, jobs: tuple[str, ...], everything: bool) -> None:
    """Cancel jobs: those that wait at once, those that run within their grace.

    \b
    Example:
      dovetail cancel 12 14_3
      dovetail cancel --all
    """
    if bool(jobs) == everything:
        raise click.UsageError("name jobs, or --all")
    if everything:
        jobs = tuple(str(row.job) for row in client_of(home).jobs(limit=LIVE_MAX).jobs)
    if jobs:
        _change("cancel", home, jobs, as_json)
    else:
        click.echo('{"jobs": []}' if as_json else "no jobs wait or run")


@click.command("requeue")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def requeue(home: Path, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Let jobs wait again, whether they run or are over.

    \b
    Example:
      dovetail requeue 12
    """
    _change("requeue", home, jobs, as_json)


@click.command("hold")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def hold(home: Path, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Keep waiting jobs from starting, until they are released.

    \b
    Example:
      dovetail hold 12
    """
    _change("hold", home, jobs, as_json)


@click.command("release")
@click.argument("jobs", nargs=-1, required=True)
@asks_a_cluster
def release(home: Path, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Let held jobs start again when it is their turn.

    \b
    Example:
      dovetail release 12
    """
    _change("release", home, jobs, as_json)


def _change(verb: str, home: Path, jobs: tuple[str, ...], as_json: bool) -> None:
    from dovetail.live.door.verbs import Changed

    client = client_of(home)
    does = {
        "cancel": client.cancel,
        "requeue": client.requeue,
        "hold": client.hold,
        "release": client.release,
    }
    changed = does[verb](*jobs)
    if as_json:
        say_json(Changed(changed))
        return
    for job in changed:
        click.echo(f"job {job} {DONE[verb]}")
