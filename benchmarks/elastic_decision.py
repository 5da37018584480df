"""How long a decision of the elastic policies takes with 10,000 GPUs and 2,000 jobs.

Run:  python -m benchmarks.elastic_decision [--gpus 10000] [--jobs 2000] [--policies afs-l,...]

Elastic jobs of the AFS models, which may share GPUs, arrive at once until some 2,000 are there;
from then on they arrive as fast as they end. Each row times the decisions from then on, at each
arrival and at each end, in CPU time, so that other programs do not count; the first, which loads
the compiled kernels, is left out.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.decisions import timed
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import ENDS, Trace
from dovetail.physics.zoo.models import zoo
from dovetail.study.option_texts import split_policies
from dovetail.study.options import Options
from dovetail.study.run import build_scene

GPUS, JOBS, DECISIONS = 10_000, 2_000, 1_500
POLICIES = (
    "afs-l afs-p afs-s max-min optimus srtf-e afs-l:packing=network dovetail dovetail:share=false"
)


def steady_trace(gpus: int, present: int, more: int, seed: int) -> Trace:
    """Returns `present` elastic jobs at once, then `more` at the rate at which they end."""
    draw = np.random.default_rng(seed)
    models = [name for name in sorted(zoo()) if name.startswith("afs/")]
    n = present + more
    drawn = [models[i] for i in draw.integers(0, len(models), n)]
    most = np.array([min(gpus, zoo()[name].max_gpus.value) for name in drawn], np.int64)
    requested = np.minimum(2 ** draw.integers(0, 4, n), most).astype(np.int64)
    length_s = np.exp(draw.normal(np.log(30_000.0), 1.0, n))
    gap_s = float(length_s.mean()) / present
    submit_s = np.concatenate([np.zeros(present), np.cumsum(draw.exponential(gap_s, more))])
    jobs = JobTable.build(
        [str(i) for i in range(n)],
        submit_s,
        requested,
        model=Labels.of(drawn),
        min_gpus=np.ones(n, np.int64),
        max_gpus=most,
        elastic=np.ones(n, bool),
        shareable=np.ones(n, bool),
    )
    ended = np.full(n, ENDS.index("completed"), np.int8)
    return Trace(jobs, length_s, np.full(n, np.nan), ended, "steady")


def measure(policy_text: str, gpus: int, present: int, more: int) -> str:
    """Returns a row: how many jobs were there and how long decisions took."""
    trace = steady_trace(gpus, present, more, seed=1)
    scene = build_scene(trace, Options(Cluster.uniform(gpus // 8, 8)))
    took_ms: list[float] = []
    there: list[int] = []
    for _, waiting, running, spent_ms in timed(scene, policy_text):
        took_ms.append(spent_ms)
        there.append(waiting + running)
        if len(took_ms) == more:
            break
    p50, p99 = np.percentile(took_ms, [50, 99])
    return (
        f"| {policy_text} | {len(took_ms):,} | {np.mean(there):,.0f} | "
        f"{p50:.2f} | {p99:.2f} | {max(took_ms):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=GPUS)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    parser.add_argument("--policies", default=POLICIES)
    given = parser.parse_args()
    print("| policy | decisions | jobs, mean | p50 ms | p99 ms | worst ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy in split_policies(given.policies):
        print(measure(policy, given.gpus, given.jobs, given.decisions), flush=True)


if __name__ == "__main__":
    main()
