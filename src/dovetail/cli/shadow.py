"""`dovetail shadow`: what a policy would do on a cluster that Slurm runs, and its worth."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import counted
from dovetail.cli.options import json_option, load_trace, refuse_unused
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.shadow.advice import Advice
    from dovetail.shadow.slurm_commands import SlurmSource
    from dovetail.shadow.snapshot import Snapshot
    from dovetail.shadow.worth import ShadowSide, Worth

FILE = click.Path(path_type=Path)
SHOWN = 10


history_option = click.option(
    "--history", type=FILE, help="Log of earlier jobs that lengths are predicted from."
)


@click.group()
def shadow() -> None:
    """Show what a policy would do on a cluster that Slurm runs; controls nothing."""


@shadow.command("slurm")
@click.option("--policy", "-p", required=True, help="The policy to ask, e.g. srtf.")
@click.option(
    "--forecast",
    default="limit",
    show_default=True,
    help="Job lengths the policy sees: limit (users' time limits), predicted[:METHOD], unknown.",
)
@history_option
@click.option(
    "--placement",
    default="strict",
    show_default=True,
    help="strict|prefer|none, best-fit|first-fit|most-free, keep|repack.",
)
@click.option("--once", is_flag=True, help="Look once. [default without --every]")
@click.option("--every", type=click.IntRange(1), help="Look again after so many seconds.")
@click.option("--log", type=FILE, help="Append what is seen and advised, for `shadow report`.")
@click.option("--squeue", type=FILE, help="Output of `squeue --json`, instead of the command.")
@click.option("--sinfo", type=FILE, help="Output of `sinfo --json`, instead of the command.")
@click.option(
    "--act",
    type=click.Choice(["order", "none"]),
    help="Set the order of waiting jobs in Slurm (order), or take it back (none).",
)
@click.option("--yes", is_flag=True, help="With --act: run the commands, not only print them.")
@json_option
def slurm(
    policy: str,
    forecast: str,
    history: Path | None,
    placement: str,
    once: bool,
    every: int | None,
    log: Path | None,
    squeue: Path | None,
    sinfo: Path | None,
    act: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Ask a policy what it would do with the jobs and nodes of a running Slurm.

    Any user may. With --act order, an administrator hands the policy's order to Slurm by the
    SiteFactor of waiting jobs; nothing else is ever changed.

    \b
    Example:
      dovetail shadow slurm --policy srtf
      dovetail shadow slurm --policy srtf --every 60 --log srtf.jsonl
    """
    import dovetail.policies  # registers the policies
    from dovetail.core.placing import Placing
    from dovetail.core.policy import parse_policy
    from dovetail.forecast.forecasts import source_of
    from dovetail.shadow.advice import advise
    from dovetail.shadow.advice_log import append

    assert dovetail.policies
    source = _source(squeue, sinfo, once=once, every=every, act=act)
    chosen, placing = parse_policy(policy), Placing.parse(placement)
    if yes and act is None:
        raise InputError("--yes", "there is nothing to carry out", "it goes with --act")
    predicted = source_of(forecast) == "predicted"
    refuse_unused("--history", "--forecast predicted", used=predicted)
    earlier = None if history is None else load_trace(str(history), None)
    while True:
        snapshot = source.snapshot(time.time())
        advice = advise(snapshot, chosen, forecast=forecast, placing=placing, history=earlier)
        if log is not None:
            append(log, snapshot, advice, forecast=forecast, placement=placement)
        _show(advice, as_json=as_json)
        if act is not None:
            _act(act, advice, snapshot, yes=yes, quiet=as_json)
        if every is None:
            return
        time.sleep(every)


def _source(
    squeue: Path | None, sinfo: Path | None, *, once: bool, every: int | None, act: str | None
) -> SlurmSource:
    from dovetail.shadow.slurm_commands import SlurmCommands, SlurmFiles

    if once and every is not None:
        raise InputError("--once", "it excludes --every")
    if squeue is None and sinfo is None:
        return SlurmCommands()
    if squeue is None or sinfo is None:
        raise InputError("--squeue", "it goes with --sinfo", "give both files or none")
    if every is not None or act is not None:
        raise InputError("--squeue", "files do not change and take no orders", "look once")
    return SlurmFiles(squeue, sinfo)


def _show(advice: Advice, *, as_json: bool) -> None:
    from dovetail.shadow.advice import sentence_of

    if as_json:
        click.echo(json.dumps(asdict(advice)))
        return
    held = sum(advice.held_back.values())
    reasons = ", ".join(f"{reason} {count}" for reason, count in advice.held_back.items())
    more = f", held back by Slurm: {held} ({reasons})" if held else ""
    cluster = f"cluster {advice.cluster}: " if advice.cluster else ""
    click.echo(
        f"{_when(advice.time_s)}, {cluster}{advice.free_gpus} of {advice.gpus} GPUs free on "
        f"{counted(advice.nodes, 'node')}; running jobs: {advice.running}, "
        f"waiting: {advice.waiting}{more}"
    )
    for note in advice.notes:
        click.echo(f"  ({note})")
    click.echo(f"{_name(advice.policy)} would")
    for line in advice.sentences():
        click.echo(f"  {line}")
    waits = list(advice.waits.items())
    following = next((job for job in advice.order if job in advice.waits), "")
    for job, code in waits[:SHOWN]:
        said = sentence_of(code, is_next=job == following)
        click.echo(f"  {job} waits ({code}): {said}")
    if len(waits) > SHOWN:
        click.echo(f"  waiting besides: {len(waits) - SHOWN} (--json lists them all)")


def _name(policy: str) -> str:
    """Returns a policy as text, without its parameters where they would fill the screen."""
    from dovetail.report.words import SPELLED_MAX

    return policy if len(policy) <= SPELLED_MAX else policy.partition(":")[0]


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _act(act: str, advice: Advice, snapshot: Snapshot, *, yes: bool, quiet: bool) -> None:
    from dovetail.shadow.site_factor import (
        carry_out,
        commands,
        factors,
        priorities,
        slurm_ids,
        undone,
    )

    known = priorities()
    order = act == "order"
    wanted = factors(slurm_ids(advice, snapshot), known) if order else undone(known)
    lines = commands(wanted, known)
    if yes:
        carry_out(lines)
        what = "the policy's order" if order else "its own order again"
        click.echo(f"Slurm has {what}: {len(lines)} site factors set", err=quiet)
        return
    click.echo("not carried out; with --yes an administrator would run:", err=quiet)
    for line in lines:
        click.echo(f"  {' '.join(line)}", err=quiet)
    if not lines:
        click.echo("  nothing: the site factors are so already", err=quiet)


@shadow.command()
@click.argument("log", type=FILE)
@click.option("--sacct", type=FILE, help="Output of `sacct --json -a -D`, instead of the command.")
@click.option(
    "--switching",
    default="restart:30",
    show_default=True,
    help="What a preemption costs, as in `simulate`.",
)
@history_option
@json_option
def report(
    log: Path, sacct: Path | None, switching: str, history: Path | None, as_json: bool
) -> None:
    """Compare what Slurm has done since a log began with what the policy would have done.

    Simulates the policy from the jobs and nodes of the log's beginning, with the jobs that came
    since and the lengths they really had.

    \b
    Example:
      dovetail shadow report srtf.jsonl
    """
    import dovetail.policies  # registers the policies
    from dovetail.core.switching import Switching
    from dovetail.forecast.forecasts import source_of
    from dovetail.shadow.advice_log import read
    from dovetail.shadow.past_jobs import past_jobs
    from dovetail.shadow.slurm_commands import SlurmCommands, SlurmFiles
    from dovetail.shadow.worth import worth

    assert dovetail.policies
    cost = Switching.parse(switching)
    begun = read(log)
    source: SlurmSource = SlurmCommands() if sacct is None else SlurmFiles(log, log, sacct)
    where = "sacct" if sacct is None else str(sacct)
    past = past_jobs(source.accounting(begun.snapshot.time_s), where)
    predicted = source_of(begun.forecast) == "predicted"
    refuse_unused("--history", "a log of --forecast predicted", used=predicted)
    result = worth(begun, past, cost, None if history is None else load_trace(str(history), None))
    if as_json:
        click.echo(json.dumps(asdict(result)))
    else:
        _print_worth(result)


def _print_worth(result: Worth) -> None:
    real, ours = result.recorded, result.simulated
    click.echo(
        f"{_when(result.begin_s)} to {_when(result.end_s)}: "
        f"{counted(result.looks, 'look')}, {counted(result.jobs, 'job')} waited or came"
    )
    click.echo(f"  {'':24}{'recorded':>12}{'simulated':>12}  {_name(result.policy)}")
    rows: Sequence[tuple[str, str, ShadowSide, ShadowSide]] = (
        ("mean wait, s", "wait_s", real, ours),
        ("median wait, s", "median_wait_s", real, ours),
        ("jobs started", "started", real, ours),
        ("jobs ended", "ended", real, ours),
    )
    for name, field, left, right in rows:
        values = [getattr(side, field) for side in (left, right)]
        texts = [f"{v:.1f}" if isinstance(v, float) else str(v) for v in values]
        click.echo(f"  {name:24}{texts[0]:>12}{texts[1]:>12}")
    click.echo(f"  {'GPUs in use':24}{real.used:>12.1%}{ours.used:>12.1%}")
    click.echo(
        f"  jobs that would have waited less: {result.sooner}, longer: {result.later}; "
        f"preemptions: {result.preemptions}"
    )
    click.echo("assumed:")
    for caveat in result.caveats:
        click.echo(f"  {caveat}")
