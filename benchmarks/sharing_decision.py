"""How long a decision of SJF-BSBF takes with 10,000 GPUs and 10,000 waiting jobs.

Run:  python -m benchmarks.sharing_decision [--quick]

Jobs of the six Pollux models, sized as in Philly, arrive at once until the cluster is full and
10,000 wait; from then on they arrive a little faster than they end. Each row times the decisions
from then on, at each arrival and at each end, in CPU time, so that other programs do not count.
A ratio of 1.25 lets everybody share, 2.0 few; `measured` lies between.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.decisions import timed
from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import ENDS, Trace
from dovetail.study.options import Options
from dovetail.study.run import build_scene

GPUS, WAITING = 10_000, 10_000
MODELS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
SIZES = np.array([1, 2, 4, 8, 16, 32])
SHARES = np.array([0.55, 0.12, 0.13, 0.12, 0.06, 0.02])


def busy_trace(gpus: int, waiting: int, more: int, seed: int) -> Trace:
    """Returns jobs that fill the cluster twice over and leave `waiting`, then one at a time."""
    draw = np.random.default_rng(seed)
    mean = float((SIZES * SHARES).sum())
    at_once = int(2 * gpus / mean + 1.7 * waiting)
    n = at_once + more
    length_s = np.exp(draw.normal(np.log(3000.0), 1.6, n))
    held_s = float(length_s.mean()) * mean / gpus / 2.0
    submit_s = np.concatenate([np.zeros(at_once), np.cumsum(draw.exponential(held_s, more))])
    requested = draw.choice(SIZES, n, p=SHARES).astype(np.int64)
    models = [MODELS[i] for i in draw.integers(0, len(MODELS), n)]
    jobs = JobTable.build(
        [str(i) for i in range(n)],
        submit_s,
        requested,
        model=Labels.of(models),
        shareable=np.ones(n, bool),
    )
    return Trace(
        jobs, length_s, np.full(n, np.nan), np.full(n, ENDS.index("completed"), np.int8), "busy"
    )


def measure(policy_text: str, interference: str | float, gpus: int, waiting: int, more: int) -> str:
    """Returns a row: what was waiting and how long decisions took."""
    trace = busy_trace(gpus, waiting, more, seed=1)
    cluster = Cluster((NodeGroup("all", gpus // 8, 8, gpu_memory_bytes=16 * GIB),))
    scene = build_scene(trace, Options(cluster, interference=interference))
    took_ms: list[float] = []
    queue: list[int] = []
    shared = 0.0
    last_s = float(trace.jobs.submit_s[-1])
    for view, waits, _, spent_ms in timed(scene, policy_text):
        if view.now >= last_s:
            break
        took_ms.append(spent_ms)
        queue.append(waits)
        if len(took_ms) % 500 == 0:
            named = view.plan.occupancy.named.values()
            shared = sum(len(jobs) == 2 for jobs in named) / gpus
    p50, p99 = np.percentile(took_ms, [50, 99])
    return (
        f"| {policy_text} | {interference} | {len(took_ms):,} | {np.mean(queue):,.0f} | "
        f"{100 * shared:.0f} % | {p50:.2f} | {p99:.2f} | {max(took_ms):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    given = parser.parse_args()
    size = 10 if given.quick else 1
    print(
        "| policy | interference | decisions | waiting | GPUs shared | p50 ms | p99 ms | worst ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for policy, interference in (
        ("sjf-bsbf", "measured"),
        ("sjf-bsbf", 1.25),
        ("sjf-bsbf", 1.75),
        ("sjf-bsbf", 2.0),
        ("sjf-bsbf:order-hosts=benefit,priority=service", "measured"),
        ("sjf-ffs", "measured"),
    ):
        more = 3000 // size
        print(measure(policy, interference, GPUS // size, WAITING // size, more), flush=True)


if __name__ == "__main__":
    main()
