"""Runs Pollux beside its authors' stored results, on their eight workloads of 160 jobs.

Run:  python -m benchmarks.pollux_fidelity [--policy pollux] [--workloads 1,2] [--measured]

Their simulator (AdaptDL, branch osdi21-artifact) decides every 60 s on 16 nodes of four T4, and
any change of a job's GPUs costs 30 s, a first start too. `--measured` runs the jobs by the
authors' tables in place of the zoo's fits; `--load` picks the stored load, `--against` the stored
policy. Data: `DOVETAIL_DATA` (default `../shared`).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pollux_measured import TableWork, table_physics, with_measured_work
from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import Cluster
from dovetail.core.job import Labels
from dovetail.core.messages import Ended, Fact
from dovetail.core.policy import Policy, name_of, parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.zoo.models import lookup
from dovetail.sim.world import SimWorld
from dovetail.study.options import Options
from dovetail.study.run import build_scene
from dovetail.study.traces import open_traces

GPUS = 64
RIGID = ("ncf",)
"""Applications that their simulator keeps on one GPU with one batch."""
OPTIONS = Options(Cluster.parse("16x4"), switching=Switching.parse("per-start:30,per-resize:30"))


class Ends:
    """Notes when jobs end."""

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}

    def record(self, facts: Sequence[Fact]) -> None:
        self.at_s.update({fact.job: fact.t for fact in facts if isinstance(fact, Ended)})


def workload(path: Path) -> Trace:
    """Returns a workload whose jobs may grow as far as their simulator lets them."""
    trace = open_traces([path], "pollux")
    jobs = trace.jobs
    names = jobs.model.texts()
    elastic = np.array([name not in RIGID for name in names])
    most = np.array([most_gpus(name) for name in names])
    named = Labels.of([f"pollux/{name}" for name in names])
    free = replace(
        jobs,
        model=named,
        elastic=elastic,
        min_gpus=np.where(elastic, 1, jobs.gpus),
        max_gpus=np.where(elastic, np.maximum(most, jobs.gpus), jobs.gpus),
    )
    return replace(trace, jobs=free)


def most_gpus(model: str) -> int:
    known = lookup(f"pollux/{model}").efficiency
    assert known is not None
    return min(GPUS, known.value.max_batch // known.value.least_per_gpu)


def completions(trace: Trace, policy: Policy, traces: Path | None) -> dict[str, float]:
    """Returns the JCT of each job; by the measured tables in `traces`, if given."""
    scene = build_scene(trace, OPTIONS)
    if traces is not None:
        work = TableWork(trace.jobs, traces)
        trace = with_measured_work(trace, work)
        scene = build_scene(trace, OPTIONS)
        scene = replace(scene, truth=table_physics(scene.truth, work))
    ends = Ends()
    world = SimWorld(scene, policy, ends)
    run_loop(world, policy)
    world.advance(float("inf"))
    submit = trace.jobs.submit_s.tolist()
    return {trace.jobs.job_id[job]: t - submit[job] for job, t in ends.at_s.items()}


def by_application(jct: dict[str, float], stored: dict[str, float]) -> str:
    """Returns the mean JCT of each application over the stored one."""
    found: dict[str, list[tuple[float, float]]] = {}
    for job, took_s in jct.items():
        found.setdefault(job.rpartition("-")[0], []).append((took_s, stored[job]))
    ratios = {name: np.mean(pairs, axis=0) for name, pairs in sorted(found.items())}
    return " ".join(f"{name} {ours / theirs:.2f}" for name, (ours, theirs) in ratios.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="pollux")
    parser.add_argument("--against", default="pollux", choices=("pollux", "optimus", "tiresias"))
    parser.add_argument("--workloads", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--load", default="1.0", choices=("0.5", "1.0", "1.5", "2.0"))
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    folder = Path(os.environ.get("DOVETAIL_DATA", "../shared")) / "data" / "pollux-osdi21"
    results = folder / "results-jobload" / f"{given.against}-{given.load}" / "summary.json"
    stored: dict[str, Any] = json.loads(results.read_text())["jcts"]
    policy = parse_policy(given.policy)
    load = "" if given.load == "1.0" else f"-{given.load}"
    means = []
    for number in given.workloads.split(","):
        name = f"workload-{number}"
        began = time.perf_counter()
        trace = workload(folder / f"workloads{load}" / f"{name}.csv")
        jct = completions(trace, policy, folder / "traces" if given.measured else None)
        assert jct.keys() == stored[name].keys()
        ours, theirs = (float(np.mean([*x.values()])) / 3600 for x in (jct, stored[name]))
        means.append((ours, theirs))
        wall_s = time.perf_counter() - began
        print(
            f"{name}: {name_of(policy)} {ours:.3f} h, stored {theirs:.3f} h, "
            f"ratio {ours / theirs:.3f} ({wall_s:.0f} s); {by_application(jct, stored[name])}",
            flush=True,
        )
    ours, theirs = np.mean(means, axis=0)
    print(f"mean of {len(means)}: {ours:.3f} h, stored {theirs:.3f} h, ratio {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
