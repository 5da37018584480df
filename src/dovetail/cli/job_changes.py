"""`dovetail cancel`, `requeue`, `hold` and `release`: change jobs of the live cluster."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json
from dovetail.cli.job_selection import jobs_of, states_of
from dovetail.live.jobs.lifecycle import TERMINAL

LISTED_MAX, PRINTED_MAX = 100_000, 50

DONE = {
    "cancel": "will be cancelled",
    "requeue": "will be requeued",
    "hold": "will be held",
    "release": "will be released",
}


@click.command("cancel")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All pending and running jobs.")
@click.option("--state", "-t", "states", multiple=True, help="All jobs in a state, e.g. PENDING.")
@click.option("--user", "-u", default="", help="All jobs of this user.")
@click.option("--name", "-n", default="", help="All jobs with this name.")
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
    """Cancel jobs: pending jobs at once, running jobs within their grace period.

    \b
    Example:
      dovetail cancel 12 14_3 15_[0-4,7]
      dovetail cancel --state PENDING --name train
      dovetail cancel --all
    """
    if bool(jobs) == bool(everything or states or user or name):
        raise click.UsageError("specify either jobs, or --all, --state, --user or --name")
    selected = not jobs
    if selected:
        listing = client_of(home).jobs(
            states=states_of(states), user=user, name=name, limit=LISTED_MAX
        )
        jobs = tuple(str(row.job) for row in listing.jobs if row.state not in TERMINAL)
    if jobs:
        return _change("cancel", home, jobs, as_json, selected=selected)
    click.echo('{"jobs": [], "left": []}' if as_json else "no such jobs wait or run")
    return 0


def _change(
    verb: str, home: Path, jobs: tuple[str, ...], as_json: bool, *, selected: bool = False
) -> int:
    reply = client_of(home).change(verb, *jobs_of(jobs))
    if as_json:
        say_json(reply)
    elif len(reply.jobs) > PRINTED_MAX:
        click.echo(f"{len(reply.jobs)} jobs {DONE[verb]}")
    else:
        for job in reply.called:
            click.echo(f"job {job} {DONE[verb]}")
    if selected:
        # Jobs that were selected by state may have ended since then: that is no failure.
        return 0
    for refused in reply.left:
        click.echo(f"dovetail: job {refused.job}: {refused.why}", err=True)
    return 1 if reply.left else 0


def _command(verb: str, summary: str) -> click.Command:
    """Returns the command of a verb that takes nothing but jobs."""

    @click.command(verb, help=f"{summary}\n\n\b\nExample:\n  dovetail {verb} 12")
    @click.argument("jobs", nargs=-1, required=True)
    @asks_a_cluster
    def change(home: Path, as_json: bool, jobs: tuple[str, ...]) -> int:
        return _change(verb, home, jobs, as_json)

    return change


requeue = _command("requeue", "Requeue jobs that are running or have ended.")
hold = _command("hold", "Hold pending jobs in the queue until they are released.")
release = _command("release", "Release held jobs: the policy may start them again.")
