"""The claims of the Sia paper beside the same runs here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from papers.frame.claim import Claim, near, ordered
from papers.sia.experiments import POLLUX, SIA, SiaExperiment, SiaRun
from papers.sia.published import TABLE_3, TABLE_4, Printed
from papers.sia.workloads import TRACES

SPREAD = 0.25
"""The paper prints one digit of 0.6 h, give or take 0.1 over workloads."""
UNITS = {"jct": "h", "p99": "h", "makespan": "h", "gpu_h": "GPU-h"}
WORDS = {
    "jct": "mean JCT",
    "p99": "99th percentile JCT",
    "makespan": "makespan",
    "gpu_h": "GPU-hours a job",
}
ORACLE = "our policy is told the speed on every type, where theirs learns it (section 5.7: 8 %)"


def _beside(
    planned: SiaExperiment, part: str, name: str, runs: Sequence[SiaRun], known: Printed
) -> Iterator[Claim]:
    for key, words in WORDS.items():
        ours, theirs = planned.hours(runs, key), float(getattr(known, key))
        why = ORACLE if name == SIA else ""
        yield near(part, f"{name}: {words}", ours, UNITS[key], theirs, SPREAD, why=why)


def table_3(planned: SiaExperiment) -> Iterator[Claim]:
    """Yields the three types of GPU."""
    for source, title in TRACES.items():
        if planned.is_quick and source != "philly":
            continue
        part = f"Table 3: {title} on T4, RTX and A100"
        runs = planned.mixed(SIA, source)
        yield from _beside(planned, part, SIA, runs, TABLE_3[source, SIA])
        if not planned.is_quick:
            others = planned.mixed(POLLUX, source)
            yield from _beside(planned, part, "pollux", others, TABLE_3[source, "pollux"])
            ours, theirs = planned.hours(runs), planned.hours(others)
            yield ordered(part, "sia before pollux", ours, theirs)


def table_4(planned: SiaExperiment) -> Iterator[Claim]:
    """Yields T4 alone, where Sia and Pollux are level."""
    part = "Table 4: Philly on 16 nodes of four T4"
    yield from _beside(planned, part, SIA, planned.alike(SIA), TABLE_4[SIA])
    if not planned.is_quick:
        others = planned.alike(POLLUX)
        yield from _beside(planned, part, "pollux", others, TABLE_4["pollux"])
        ratio = planned.hours(planned.alike(SIA)) / planned.hours(others)
        yield near(part, "sia / pollux", ratio, "x", 1.9 / 2.0, 0.1)


def restarts(planned: SiaExperiment) -> Iterator[Claim]:
    """Yields the restarts a job, which the text of section 5.4 gives for T4 alone."""
    part = "Section 5.4: restarts a job on T4"
    ours = planned.hours(planned.alike(SIA), "restarts")
    yield Claim(part, SIA, ours, "", 2.6, why="ours counts every preemption and resize")
    if not planned.is_quick:
        others = planned.hours(planned.alike(POLLUX), "restarts")
        yield Claim(part, "pollux", others, "", 5.1, why="ours counts every preemption and resize")
