"""`dovetail ls`, `show`, `why` and `logs`: the list of jobs; details, state, output of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.cli.cluster_options import (
    asks_a_cluster,
    client_of,
    looking_back,
    say_json,
    shown_option,
)
from dovetail.cli.job_selection import states_of

if TYPE_CHECKING:
    from dovetail.live.client.client import Client
    from dovetail.live.server.messages.one_job import ShowReply
    from dovetail.live.server.messages.reason import ExplainReply

R = TypeVar("R")
LIMIT_MAX = 100_000
"""The most rows of one reply."""


@click.command("ls")
@click.option("--all", "ended", is_flag=True, help="Include jobs that have ended.")
@click.option(
    "--state", "-t", "states", multiple=True, help="Only these states, e.g. RUNNING or PD,R."
)
@click.option("--user", "-u", default="", help="Only jobs of this user.")
@click.option("--name", "-n", default="", help="Only jobs with this name.")
@shown_option("--limit", default=50, type=click.IntRange(1, LIMIT_MAX), help="Rows per page.")
@click.option("--page", default=1, type=click.IntRange(1), help="Number of the page, from 1.")
@click.option("--array", "-r", "each_task", is_flag=True, help="Show one row per array task.")
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
    """List the running jobs, then the pending jobs in the order of the policy.

    The pending tasks of an array share one row, such as 12_[3-99]. On a terminal, wide columns are
    truncated; output to a file or a pipe is complete.

    \b
    Example:
      dovetail ls
      dovetail ls --all --user alice --json
      dovetail ls --all --page 2
    """
    wanted_states = states_of(states)
    listing = client_of(home).jobs(
        states=wanted_states,
        user=user,
        name=name,
        ended=ended,
        limit=limit,
        offset=limit * (page - 1),
        group_arrays=not each_task,
    )
    if as_json:
        say_json(listing)
        return
    if not listing.jobs:
        nothing = "no such jobs" if states or user or name else "no jobs are pending or running"
        pages = f"no page {page}: the last is {-(-listing.total // limit)}" if listing.total else ""
        click.echo(pages or nothing)
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import jobs_lines

    terminal.say(jobs_lines(listing.jobs, listing.now_s, terminal.width()))
    if listing.total > len(listing.jobs):
        first = f"{listing.offset + 1:,} to " if listing.offset else ""
        shown = f"showing {first}{listing.offset + len(listing.jobs):,} of {listing.total:,}"
        following = f"next: --page {page + 1}, " if listing.more else ""
        click.echo(f"{shown} ({following}all: --limit {min(listing.total, LIMIT_MAX)})")


@click.command("show")
@click.argument("job")
@asks_a_cluster
def show(home: Path, as_json: bool, job: str) -> None:
    """Show the details of one job. Environment variables appear without their values.

    \b
    Example:
      dovetail show 12
    """
    _print_reply(looking_back(home, lambda client: client.show(job)), _detail_lines, as_json)


def _print_reply(reply: R, lines: Callable[[R], Iterable[str]], as_json: bool) -> None:
    if as_json:
        say_json(reply)
        return
    for line in lines(reply):
        click.echo(line)


def _detail_lines(details: ShowReply) -> list[str]:
    from dovetail.cli.cluster_tables import gpus_text, progress_text, span
    from dovetail.core.units import NEVER_S

    row = details.row
    started = row.start_s < NEVER_S
    lines = [
        ("job", row.called + (f" (job {row.job})" if row.array >= 0 else "")),
        ("name", row.name),
        ("user", row.user),
        ("state", row.state + (f" ({row.reason})" if row.reason not in ("", "None") else "")),
        ("detail", details.detail),
        ("waits", span(details.waits_s)),
        ("waited", span(row.start_s - row.submit_s) if started else ""),
        ("ran", span(row.ran_s) if started else ""),
        ("queue", details.queue),
        ("account", details.account),
        ("qos", details.qos),
        ("reservation", details.reservation),
        ("container", details.container_image),
        ("priority", f"{details.priority:g}" if details.priority else ""),
        ("gpus", gpus_text(row) + (f" {details.gpu_type}" if details.gpu_type else "")),
        ("where", row.where),
        ("workers", ", ".join(details.workers)),
        ("progress", progress_text(row)),
        ("speed", f"{row.rate:.2g} of alone as requested" if row.rate else ""),
        ("samples", _of(details.samples, details.total_samples)),
        ("saved step", str(details.saved_step) if details.saved_step >= 0 else ""),
        ("command", " ".join(details.command)),
        ("script", f"{details.script_lines} lines" if details.script_lines else ""),
        ("folder", details.workdir),
        ("output", details.output),
        ("kept in", details.folder),
        ("environment", ", ".join(details.environment)),
        ("depends on", ", ".join(details.after)),
        ("time limit", span(details.time_limit_s)),
        *_restart_values(details),
        ("stopped", f"{_times(details.stops)} by the policy" if details.stops else ""),
        ("tried again", str(row.retries) if row.retries else ""),
        ("exit code", "" if row.exit_code is None else str(row.exit_code)),
        ("allows", ", ".join(_allowed(details))),
    ]
    known = {name: value for name, value in lines if value not in ("", "-")}
    width = max(map(len, known))
    return [f"{name:<{width}}  {value}" for name, value in known.items()]


def _restart_values(details: ShowReply) -> tuple[tuple[str, str], ...]:
    kills = details.grace_kills
    return (
        ("restarts", str(details.restarts) if details.restart_s and details.restarts else ""),
        ("killed", f"{_times(kills)} after its grace" if kills else ""),
    )


def _allowed(details: ShowReply) -> list[str]:
    restarts = f"elastic by restart ({details.restart_s:g} s)"
    elastic = restarts if details.restart_s else "elastic"
    flags = {
        elastic: details.row.min_gpus < details.row.max_gpus,
        "shareable": details.shareable,
        "preemptible": details.preemptible,
        "requeue": details.requeue,
    }
    return [name for name, is_set in flags.items() if is_set]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _of(samples: int, total: int) -> str:
    if not samples and not total:
        return ""
    return f"{samples} of {total}" if total else str(samples)


@click.command("why")
@click.argument("job")
@asks_a_cluster
def why(home: Path, as_json: bool, job: str) -> None:
    """Explain why a job waits, why it runs on its GPUs, or why it ended.

    \b
    Example:
      dovetail why 12
    """
    _print_reply(looking_back(home, lambda client: client.why(job)), _explanation_lines, as_json)


def _explanation_lines(explanation: ExplainReply) -> list[str]:
    code = f" ({explanation.code})" if explanation.code != "None" else ""
    lines = [f"job {explanation.called} is {explanation.state}{code}: {explanation.sentence}"]
    lines += [f"  - {fact}" for fact in explanation.evidence]
    if explanation.would_start:
        lines.append(f"  to start: {explanation.would_start}")
    if explanation.decided_s >= 0:
        lines.append(
            f"  last decision: {max(0.0, explanation.now_s - explanation.decided_s):.0f} s ago"
        )
    return lines


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option("-n", "--tail", default=-1, type=click.IntRange(-1), help="Only the last N lines.")
@asks_a_cluster
def logs(home: Path, as_json: bool, job: str, follow: bool, tail: int) -> int:
    """Print the output of a job.

    With -f, the exit code is 0 only if the job completed.

    \b
    Example:
      dovetail logs -f 12
    """
    if follow:
        return _print_output(client_of(home), job, tail, as_json, follow=True)
    return looking_back(
        home, lambda client: _print_output(client, job, tail, as_json, follow=False)
    )


def _print_output(client: Client, job: str, tail: int, as_json: bool, *, follow: bool) -> int:
    for piece in client.logs(job, follow=follow, tail=tail):
        if as_json:
            if piece.text or piece.end:
                say_json(piece)
        else:
            click.echo(piece.text, nl=False)
        if piece.end and follow:
            if not as_json and piece.state != "COMPLETED":
                click.echo(f"job {job} is {piece.state}", err=True)
            return 0 if piece.state == "COMPLETED" else 1
    return 0
