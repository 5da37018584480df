"""The testbed of the Muri paper: 400 jobs measured on 64 V100 under six policies, and replayed.

The artifact holds when each job was submitted and done. We replay the same jobs under the same
policies, deciding every six minutes and paying each model's measured start-up, and compare job
by job. The one thing the stage profiles lack is the pace of the real executor: the authors put
it at 1.5 per cent in their simulator, which is shown as a variation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.switching import Switching
from dovetail.core.units import HOUR_S
from papers.frame.claim import Claim, ratio_band
from papers.frame.experiment import Results
from papers.frame.scope import Scope
from papers.muri.experiments import CYCLE, GROUPS, NAMES, OPTIONS, RESOURCES, MuriRun, tail_s
from papers.muri.published import SPREAD, TESTBED
from papers.muri.workloads import BED, CLUSTER, MuriWorkload

POLICIES = {
    "srtf": "ticked:inner=srtf,period-s=360",
    "srsf": "ticked:inner=srsf,period-s=360",
    "tiresias": "ticked:inner=tiresias:thresholds=3250/7200;inside=list,period-s=360",
    "themis": "ticked:inner=themis,period-s=360",
    "muri-s": "muri-s:tick-s=360",
    "muri-l": "muri-l:tick-s=360",
}
LOGS = {
    "srtf": "SRTF", "srsf": "SRSF", "tiresias": "tiresias",
    "themis": "themis", "muri-s": "Muri-S", "muri-l": "Muri-L",
}  # fmt: skip
EXECUTOR = 1.015
"""Iterations on the cluster over those in the profiles, in the authors' simulator."""
CLOSE = 0.10
"""Band of means and makespans against the measured ones; the paper claims 3 % for its own."""
METRICS = {"avg_jct_s": "mean JCT", "makespan_s": "makespan", "p99_jct_s": "99th percentile JCT"}
CYCLES = {
    "no contention": f"{CYCLE},no-contention",
    "no floor": f"{CYCLE},no-floor",
    "equation 3": "barrier,no-contention",
    "equation 3 with contention": "barrier",
    "equation 3, three stages": "barrier,no-contention,three-stages",
}


@dataclass(frozen=True, slots=True)
class Testbed:
    """The testbed's jobs, and where the logs are."""

    jobs: MuriWorkload
    logs: str
    quick: bool

    def run(self, policy: str) -> MuriRun:
        """Returns the replay under a policy."""
        return MuriRun(self.jobs, POLICIES[policy], OPTIONS, detailed=True)

    def varied(self, policy: str) -> dict[str, MuriRun]:
        """Returns replays with one thing changed."""
        run = self.run(policy)
        longer = {"iterations 1.5 % longer": run.on(replace(self.jobs, longer=EXECUTOR))}
        muri = policy.startswith("muri")
        if self.quick:
            return {} if muri else longer
        varied = {
            **longer,
            "starts free": run.varied(switching=Switching.parse("none")),
            "decided at once": run.under(_at_once(run.policy)),
        }
        if muri:
            varied |= {words: run.varied(cycle=cycle) for words, cycle in CYCLES.items()}
            varied["GPUs of 32 GiB"] = run.varied(cluster=Cluster.parse(f"{CLUSTER}/32G"))
            merged = f"{POLICIES[policy]},merge-order=class"
            varied["merged by class, as the artifact"] = run.under(merged)
        return varied

    def runs(self) -> list[MuriRun]:
        """Returns every replay."""
        runs = [self.run(p) for p in POLICIES]
        return runs + [t for p in POLICIES for t in self.varied(p).values()]

    def measured(self, policy: str) -> dict[str, tuple[float, float]]:
        """Returns the measured JCT and end of each job, by id."""
        log = pl.read_csv(Path(self.logs) / f"{LOGS[policy]}.job.csv")
        columns = (log[c].to_list() for c in ("job_id", "JCT", "end_time"))
        return {str(i): (jct, end) for i, jct, end in zip(*columns, strict=True)}


def _at_once(policy: str) -> str:
    inner = policy.removeprefix("ticked:inner=").removesuffix(",period-s=360")
    return inner.replace(";", ",").replace("tick-s=360", "tick-s=0")


def find_testbed(scope: Scope) -> Testbed | None:
    """Returns the testbed if its trace and logs are there."""
    file, logs = f"{BED}/cluster_trace.csv", f"{BED}/results"
    if not scope.has(file, *(f"{logs}/{name}.job.csv" for name in LOGS.values())):
        return None
    jobs = MuriWorkload("testbed", str(scope.path(file)))
    return Testbed(jobs, str(scope.path(logs)), scope.effort == "quick")


def measured_numbers(measured: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Returns mean JCT, makespan and tail of measured jobs; the first was submitted at 0."""
    jct_s = np.array([jct for jct, _ in measured.values()])
    return {
        "avg_jct_s": float(jct_s.mean()),
        "makespan_s": max(end for _, end in measured.values()),
        "p99_jct_s": tail_s(jct_s),
    }


def paired(testbed: Testbed, results: Results, run: MuriRun, policy: str) -> tuple[Floats, Floats]:
    """Returns our JCT and the measured one of each job."""
    measured, ours = testbed.measured(policy), results[run]
    pairs = [(ours[f"jct:{i}"], jct) for i, (jct, _) in measured.items()]
    found = np.array(pairs)
    return found[:, 0], found[:, 1]


def claims(testbed: Testbed, results: Results) -> Iterator[Claim]:
    """Yields Tables 4 and 5, Figure 8, each policy against its log, and what moves it."""
    yield from tables(testbed, results)
    yield from figure_8(testbed, results)
    for policy in POLICIES:
        yield from against_the_log(testbed, results, policy)
    for policy in POLICIES:
        yield from varied(testbed, results, policy)


def tables(testbed: Testbed, results: Results) -> Iterator[Claim]:
    """Yields Tables 4 and 5: rivals over Muri."""
    for (rival, muri), published in TESTBED.items():
        part = f"Table {4 if muri == 'muri-s' else 5}: testbed, over {NAMES[muri]}"
        for (key, words), theirs in zip(METRICS.items(), published, strict=True):
            ours = results.ratio(testbed.run(rival), testbed.run(muri), key)
            band = ratio_band(theirs, SPREAD)
            yield Claim(part, f"{NAMES[rival]}: {words}", ours, "x", theirs, band)


def figure_8(testbed: Testbed, results: Results) -> Iterator[Claim]:
    """Yields the sign of Figure 8: shorter queues, less blocking, busier resources."""
    part = "Figure 8: the testbed meanwhile, averages up to the last submission"
    for rivals, muri in ((("srtf", "srsf"), "muri-s"), (("tiresias", "themis"), "muri-l")):
        mine = results[testbed.run(muri)]
        for rival in rivals:
            theirs = results[testbed.run(rival)]
            for key, words in (("mean queue", "queue length"), ("mean blocking", "blocking index")):
                ratio = mine[key] / theirs[key]
                what = f"{words}, {NAMES[muri]} over {NAMES[rival]}"
                yield Claim(part, what, ratio, "x", holds=ratio < 1)
            for resource in RESOURCES:
                ratio = mine[f"mean {resource}"] / theirs[f"mean {resource}"]
                what = f"{resource} used, {NAMES[muri]} over {NAMES[rival]}"
                yield Claim(part, what, ratio, "x", holds=ratio > 1)


def against_the_log(testbed: Testbed, results: Results, policy: str) -> Iterator[Claim]:
    """Yields ours beside what was measured, as a whole and job by job."""
    part = f"Testbed, {NAMES[policy]}: simulated against measured"
    ours, theirs = (
        results[testbed.run(policy)],
        measured_numbers(testbed.measured(policy)),
    )
    for key, words in METRICS.items():
        band = ratio_band(theirs[key] / HOUR_S, CLOSE if key != "p99_jct_s" else SPREAD)
        why = WHY_THEMIS if policy == "themis" else WHY_LONGER
        yield Claim(part, words, ours[key] / HOUR_S, "h", theirs[key] / HOUR_S, band, why=why)
    median, p90, rank = errors(*paired(testbed, results, testbed.run(policy), policy))
    yield Claim(part, "median error of a job's JCT", 100 * median, "%")
    yield Claim(part, "90th percentile of that error", 100 * p90, "%")
    yield Claim(part, "rank correlation of JCTs", rank)


def errors(ours: Floats, theirs: Floats) -> tuple[float, float, float]:
    """Returns median and 90th percentile of relative errors, and Spearman's correlation."""
    off = np.abs(ours - theirs) / theirs
    mine, measured = (
        np.argsort(np.argsort(x, kind="stable")).astype(float) for x in (ours, theirs)
    )
    correlation = float(np.corrcoef(mine, measured)[0, 1])
    return float(np.median(off)), float(np.quantile(off, 0.9)), correlation


def varied(testbed: Testbed, results: Results, policy: str) -> Iterator[Claim]:
    """Yields simulated over measured mean JCT, with one thing changed at a time."""
    part = "Testbed, where the gap comes from: simulated over measured"
    measured = measured_numbers(testbed.measured(policy))["avg_jct_s"]
    for words, run in {"as above": testbed.run(policy), **testbed.varied(policy)}.items():
        ratio = results[run]["avg_jct_s"] / measured
        median, _, _ = errors(*paired(testbed, results, run, policy))
        yield Claim(part, f"{NAMES[policy]}, {words}: mean JCT", ratio, "x", 1.0)
        yield Claim(part, f"{NAMES[policy]}, {words}: median error of a job", 100 * median, "%")


def rivals_of(policy: str) -> tuple[str, ...]:
    """Returns the policies of the testbed that stand beside Muri in the same table."""
    return next(r for r, muri in GROUPS.values() if muri == policy)[:2]


WHY_LONGER = "iterations on the cluster took about 1.5 % longer than the profiles say"
WHY_THEMIS = (
    "the artifact's Themis ranks jobs by a share that it solves for at each tick, from isolated "
    "throughputs in wrong units (its issue 3); ours auctions leases of twenty minutes"
)
