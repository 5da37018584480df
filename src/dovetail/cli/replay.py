"""`dovetail replay`: a recorded run again, decision by decision."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import counted

if TYPE_CHECKING:
    from dovetail.control.replay import Difference
    from dovetail.core.placement import Placement
    from dovetail.replaying.decisions import Replayed
    from dovetail.replaying.predicted import Compared

SHOWN = 10
ASPECTS = {
    "gpu_ids": "GPUs",
    "accumulation_steps": "accumulation",
    "fractions": "fractions",
    "samples": "samples",
    "interleave": "interleaving",
    "batch_size": "batch size",
}
"""What two placements on as many GPUs of the same nodes may differ in, and how that is called."""


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", "-p", default="", help="Another policy than the recorded one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(log: Path, policy: str, as_json: bool) -> int:
    """Replay an event log: would the policy decide the same again?

    The events come from the log; each decision is compared with the recorded one. Exit code 1
    when any differs and the log does not explain it. LOG may also be the folder of a live
    cluster: each controller is replayed under the policy it started with, and the jobs are
    simulated too, with the lengths that they turned out to have, and compared with what happened.

    \b
    Example:
      dovetail replay srtf-run/events.jsonl
      dovetail replay ~/.dovetail
    """
    from dovetail.cli.progress import bar, busy
    from dovetail.replaying.decisions import replay as run
    from dovetail.replaying.live_log import called_in, exported, is_cluster
    from dovetail.replaying.predicted import predict

    log = log.expanduser()
    compared = None
    with exported(log) as events:
        with bar("replaying", 1.0) as show:
            found = run(events, policy, progress=show)
        if is_cluster(log):
            with busy("simulating"):
                compared = predict(events, policy)
    if as_json:
        said = _as_values(found) | ({} if compared is None else {"live": asdict(compared)})
        click.echo(json.dumps(said))
    else:
        called = called_in(log)
        _say_differences(found, called)
        if compared is not None:
            _say_prediction(compared, called)
    return 1 if found.unexplained else 0


def _as_values(found: Replayed) -> dict[str, object]:
    names = found.trace.jobs.job_id
    differences = [
        {
            "t": d.t,
            "job": names[d.job],
            **dict(zip(("recorded", "now"), _sides(d), strict=True)),
            "why": d.why,
        }
        for d in found.differences
    ]
    return {
        "policy": found.policy,
        "decisions": found.decisions,
        "differences": differences,
        "controller_starts": found.starts,
        "recovering_s": found.recovering_s,
    }


def _sides(difference: Difference) -> tuple[str, str]:
    """Returns how the two placements of a difference read: never the same."""
    was, now = difference.recorded, difference.decided
    said = _where(was), _where(now)
    if was is None or now is None or said[0] != said[1]:
        return said
    # They have the same spans, so something else of them is not the same.
    names = [
        f.name for f in fields(was) if f.compare and getattr(was, f.name) != getattr(now, f.name)
    ]
    return _where(was, names), _where(now, names)


def _say_differences(found: Replayed, called: Mapping[str, str]) -> None:
    names = [called.get(name, name) for name in found.trace.jobs.job_id]
    click.echo(
        f"{found.policy}: {found.decisions} decisions, {len(found.differences)} placements "
        "differ from the log"
    )
    if found.starts > 1:
        click.echo(
            f"  the controller started {found.starts} times; for {found.recovering_s:g} s in all "
            "it recovered and decided nothing"
        )
    for d in found.unexplained[:SHOWN]:
        recorded, now = _sides(d)
        click.echo(f"  at {d.t:g} s job {names[d.job]}: recorded {recorded}, now {now}")
    if len(found.unexplained) > SHOWN:
        click.echo(f"  and {len(found.unexplained) - SHOWN} more (--json lists them all)")
    for why, count in Counter(d.why for d in found.differences if d.why).items():
        click.echo(f"  {count} explained: {why} (--json lists them)")


def _say_prediction(compared: Compared, called: Mapping[str, str]) -> None:
    jobs = len(compared.jobs)
    click.echo(f"{counted(jobs, 'job')} completed; predicted by simulation against real:")
    click.echo(f"  mean JCT  {compared.predicted_jct_s:10.1f} s {compared.real_jct_s:10.1f} s")
    click.echo(
        f"  makespan  {compared.predicted_makespan_s:10.1f} s {compared.real_makespan_s:10.1f} s"
    )
    worst = sorted(compared.jobs, key=lambda j: -abs(j.predicted_jct_s - j.real_jct_s))
    for job in worst[:SHOWN]:
        name = called.get(job.job, job.job)
        click.echo(f"  job {name:>6}{job.predicted_jct_s:10.1f} s {job.real_jct_s:10.1f} s")
    if jobs > SHOWN:
        click.echo(f"  and {jobs - SHOWN} jobs that are closer (--json lists them all)")
    if len(compared.policies) > 1:
        before = ", then ".join(compared.policies)
        click.echo(f"made under {before}; all of it is compared with {compared.policy}")
    say_guessed([called.get(job, job) for job in compared.guessed])


def say_guessed(jobs: Sequence[str]) -> None:
    """Says which lengths are guesses: of jobs that never ran alone nobody measured a rate alone."""
    if jobs:
        named = ", ".join(jobs[:SHOWN]) + (", ..." if len(jobs) > SHOWN else "")
        are = (
            "the length of 1 job is a guess"
            if len(jobs) == 1
            else (f"the lengths of {len(jobs)} jobs are guesses")
        )
        click.echo(f"{are} (always shared its GPUs, no declared duration): {named}")


def _where(placement: Placement | None, aspects: Sequence[str] = ()) -> str:
    """Returns the GPUs of a placement, and what it says of some of its other aspects."""
    if placement is None:
        return "not running"
    where = " + ".join(f"{gpus} on node {node}" for node, gpus in placement.spans)
    said = [f"{ASPECTS[name]} {getattr(placement, name) or 'none'}" for name in aspects]
    return f"{where} ({', '.join(said)})" if said else where
