"""`dovetail replay`: replays a recorded run and compares each decision."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import counted
from dovetail.cli.options import json_option

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
    "gpu_part": "part of each GPU",
}
"""Fields in which placements with the same spans may differ, with their names for users."""


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", "-p", default="", help="Policy to replay. [default: the recorded one]")
@json_option
def replay(log: Path, policy: str, as_json: bool) -> int:
    """Replay an event log and compare the decisions of the policy.

    Feeds the events of the log to the policy and compares each decision with the recorded one. The
    exit code is 1 if a decision differs and the log does not explain the difference. LOG may also
    be the folder of a live cluster: then each controller is replayed under the policy it started
    with, and the jobs are also simulated with their actual lengths and compared with the real run.

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
            replayed = run(events, policy, progress=show)
        if is_cluster(log):
            with busy("simulating"):
                compared = predict(events, policy)
    if as_json:
        values = _as_values(replayed) | ({} if compared is None else {"live": asdict(compared)})
        click.echo(json.dumps(values))
    else:
        called = called_in(log)
        _print_differences(replayed, called)
        if compared is not None:
            _print_prediction(compared, called)
    return 1 if replayed.unexplained else 0


def _as_values(replayed: Replayed) -> dict[str, object]:
    names = replayed.trace.jobs.job_id
    differences = [
        {
            "t": d.t,
            "job": names[d.job],
            **dict(zip(("recorded", "now"), _sides(d), strict=True)),
            "why": d.why,
        }
        for d in replayed.differences
    ]
    return {
        "policy": replayed.policy,
        "decisions": replayed.decisions,
        "differences": differences,
        "controller_starts": replayed.starts,
        "recovering_s": replayed.recovering_s,
    }


def _sides(difference: Difference) -> tuple[str, str]:
    """Returns the texts of the two placements of a difference, which are never equal."""
    was, now = difference.recorded, difference.decided
    texts = _where(was), _where(now)
    if was is None or now is None or texts[0] != texts[1]:
        return texts
    # The spans are equal, so another field differs.
    names = [
        f.name for f in fields(was) if f.compare and getattr(was, f.name) != getattr(now, f.name)
    ]
    return _where(was, names), _where(now, names)


def _print_differences(replayed: Replayed, called: Mapping[str, str]) -> None:
    names = [called.get(name, name) for name in replayed.trace.jobs.job_id]
    click.echo(
        f"{replayed.policy}: {replayed.decisions} decisions, {len(replayed.differences)} "
        "placements differ from the log"
    )
    if replayed.starts > 1:
        click.echo(
            f"  the controller started {replayed.starts} times; it made no decisions while it "
            f"recovered, for {replayed.recovering_s:g} s in total"
        )
    for d in replayed.unexplained[:SHOWN]:
        recorded, now = _sides(d)
        click.echo(f"  at {d.t:g} s job {names[d.job]}: recorded {recorded}, now {now}")
    if len(replayed.unexplained) > SHOWN:
        click.echo(f"  and {len(replayed.unexplained) - SHOWN} more (--json lists them all)")
    for why, count in Counter(d.why for d in replayed.differences if d.why).items():
        click.echo(f"  {count} explained: {why} (--json lists these)")


def _print_prediction(compared: Compared, called: Mapping[str, str]) -> None:
    jobs = len(compared.jobs)
    click.echo(f"{counted(jobs, 'job')} completed; simulated and real times:")
    click.echo(f"  mean JCT  {compared.predicted_jct_s:10.1f} s {compared.real_jct_s:10.1f} s")
    click.echo(
        f"  makespan  {compared.predicted_makespan_s:10.1f} s {compared.real_makespan_s:10.1f} s"
    )
    worst = sorted(compared.jobs, key=lambda j: -abs(j.predicted_jct_s - j.real_jct_s))
    for job in worst[:SHOWN]:
        name = called.get(job.job, job.job)
        click.echo(f"  job {name:>6}{job.predicted_jct_s:10.1f} s {job.real_jct_s:10.1f} s")
    if jobs > SHOWN:
        click.echo(f"  and {jobs - SHOWN} jobs with smaller differences (--json lists them all)")
    if len(compared.policies) > 1:
        before = ", then ".join(compared.policies)
        click.echo(f"recorded under {before}; all jobs are simulated under {compared.policy}")
    print_guessed([called.get(job, job) for job in compared.guessed])


def print_guessed(jobs: Sequence[str]) -> None:
    """Prints the jobs with guessed lengths: they never ran alone, so have no rate of their own."""
    if jobs:
        named = ", ".join(jobs[:SHOWN]) + (", ..." if len(jobs) > SHOWN else "")
        guesses = f"the lengths of {len(jobs)} jobs are guesses"
        if len(jobs) == 1:
            guesses = "the length of 1 job is a guess"
        click.echo(f"{guesses} (always shared its GPUs, no declared duration): {named}")


def _where(placement: Placement | None, aspects: Sequence[str] = ()) -> str:
    """Returns the text of a placement, with the values of some of its other fields."""
    if placement is None:
        return "not running"
    where = " + ".join(f"{gpus} on node {node}" for node, gpus in placement.spans)
    texts = [f"{ASPECTS[name]} {getattr(placement, name) or 'none'}" for name in aspects]
    return f"{where} ({', '.join(texts)})" if texts else where
