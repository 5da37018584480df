"""`dovetail ls` and `dovetail show`: what jobs there are, and all of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, looking_back, say_json
from dovetail.cli.job_states import states_of

if TYPE_CHECKING:
    from dovetail.live.server.messages.one_job import Shown

LIMIT_MAX = 100_000
"""Rows of one reply at most."""


@click.command("ls")
@click.option("--all", "ended", is_flag=True, help="Also jobs that are over.")
@click.option("--state", "-t", "states", multiple=True, help="Only these, as in RUNNING or PD,R.")
@click.option("--user", "-u", default="", help="Only jobs of this user.")
@click.option("--name", "-n", default="", help="Only jobs of this name.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, LIMIT_MAX),
    help="Rows of a page.",
)
@click.option("--page", default=1, type=click.IntRange(1), help="Which page, from 1.")
@click.option("--array", "-r", "each_task", is_flag=True, help="One row for each task of an array.")
@asks_a_cluster
def ls(
    home: Path,
    as_json: bool,
    ended: bool,
    states: tuple[str, ...],
    user: str,
    name: str,
    limit: int,
    page: int,
    each_task: bool,
) -> None:
    """List jobs: those on GPUs, then those that wait, in the policy's order.

    Waiting tasks of an array are one row, as 12_[3-99]. A terminal cuts what is too wide for it;
    output to a file or a pipe is whole.

    \b
    Example:
      dovetail ls
      dovetail ls --all --user alice --json
      dovetail ls --all --page 2
    """
    wanted = states_of(states)
    found = client_of(home).jobs(
        states=wanted,
        user=user,
        name=name,
        ended=ended,
        limit=limit,
        offset=limit * (page - 1),
        group_arrays=not each_task,
    )
    if as_json:
        say_json(found)
        return
    if not found.jobs:
        nothing = "no such jobs" if states or user or name else "no jobs wait or run"
        pages = f"no page {page}: the last is {-(-found.total // limit)}" if found.total else ""
        click.echo(pages or nothing)
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import jobs_lines

    terminal.say(jobs_lines(found.jobs, found.now_s, terminal.width()))
    if found.total > len(found.jobs):
        first = f"{found.offset + 1:,} to " if found.offset else ""
        shown = f"showing {first}{found.offset + len(found.jobs):,} of {found.total:,}"
        following = f"next: --page {page + 1}, " if found.more else ""
        click.echo(f"{shown} ({following}all: --limit {min(found.total, LIMIT_MAX)})")


@click.command("show")
@click.argument("job")
@asks_a_cluster
def show(home: Path, as_json: bool, job: str) -> None:
    """Show all of one job. Of its environment only the names, for values may be secret.

    \b
    Example:
      dovetail show 12
    """
    found = looking_back(home, lambda client: client.show(job))
    if as_json:
        say_json(found)
        return
    width = max(len(name) for name, _ in _lines(found))
    for name, value in _lines(found):
        click.echo(f"{name:<{width}}  {value}")


def _lines(found: Shown) -> list[tuple[str, str]]:
    """Returns what is worth saying of a job, line by line."""
    from dovetail.cli.cluster_tables import gpus_text, progress_text, span
    from dovetail.core.units import NEVER_S

    row = found.row
    started = row.start_s < NEVER_S
    lines = [
        ("job", row.called + (f" (job {row.job})" if row.array >= 0 else "")),
        ("name", row.name),
        ("user", row.user),
        ("state", row.state + (f" ({row.reason})" if row.reason not in ("", "None") else "")),
        ("detail", found.detail),
        ("waited", span(row.start_s - row.submit_s) if started else ""),
        ("ran", span(row.ran_s) if started else ""),
        ("queue", found.queue),
        ("priority", f"{found.priority:g}" if found.priority else ""),
        ("gpus", gpus_text(row) + (f" {found.gpu_type}" if found.gpu_type else "")),
        ("where", row.where),
        ("workers", ", ".join(found.workers)),
        ("progress", progress_text(row)),
        ("speed", f"{row.rate:.2g} of alone as requested" if row.rate else ""),
        ("samples", _of(found.samples, found.total_samples)),
        ("saved step", str(found.saved_step) if found.saved_step >= 0 else ""),
        ("command", " ".join(found.command)),
        ("script", f"{found.script_lines} lines" if found.script_lines else ""),
        ("folder", found.workdir),
        ("output", found.output),
        ("kept in", found.folder),
        ("environment", ", ".join(found.environment)),
        ("depends on", ", ".join(found.after)),
        ("time limit", span(found.time_limit_s)),
        ("tried again", str(row.retries) if row.retries else ""),
        ("exit code", "" if row.exit_code is None else str(row.exit_code)),
        ("allows", ", ".join(_allowed(found))),
    ]
    return [(name, value) for name, value in lines if value not in ("", "-")]


def _allowed(found: Shown) -> list[str]:
    flags = {
        "elastic": found.row.min_gpus < found.row.max_gpus,
        "shareable": found.shareable,
        "preemptible": found.preemptible,
        "requeue": found.requeue,
    }
    return [name for name, is_set in flags.items() if is_set]


def _of(samples: int, total: int) -> str:
    if not samples and not total:
        return ""
    return f"{samples} of {total}" if total else str(samples)
