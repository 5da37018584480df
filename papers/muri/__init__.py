"""The paper Multi-Resource Interleaving for Deep Learning Training (Zhao et al., SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.frame.experiment import Playable
from papers.frame.paper import Paper
from papers.muri.claims import claims, orders_that_move
from papers.muri.experiments import MuriExperiment
from papers.muri.plots import plots
from papers.muri.testbed import find_testbed


def _runs(planned: MuriExperiment) -> list[Playable]:
    testbed = find_testbed(planned.scope)
    return [*planned.runs(), *(testbed.runs() if testbed else ())]


def _notes(planned: MuriExperiment) -> Iterator[str]:
    if planned.main.file:
        played = ", ".join(c.jobs.label for c in planned.cases)
        yield (
            f"Traces of the authors' artifact (Rivendile/Muri, Apache-2.0): {played}; a prime "
            "means that all jobs come at once. Trace 1 of the paper is not in the data folder."
        )
    else:
        yield (
            "Generated months, not the paper's traces: put data/muri of the artifact "
            "(github.com/Rivendile/Muri: simulator/trace-data, cluster_exp) into a folder and give "
            "it with --data or DOVETAIL_DATA. No published number is held against these."
        )
    if find_testbed(planned.scope) is None:
        yield "The testbed's trace and logs were not found: no Tables 4 and 5, no Figure 8."
    yield (
        "Comparisons take the overlapped cycle that the artifact computes, with the contention its "
        "authors measured and no cycle below a member's own iteration; a start takes each model's "
        "measured start-up. Simulations decide at events, the testbed every 360 s."
    )
    if planned.scope.effort != "full":
        yield "Themis, whose leases take long to play, only on the shortest trace, if at all."
    lost = orders_that_move(planned)
    yield (
        "No variation of the rule of the cycle turns an order on the main trace."
        if not lost
        else f"Variations that turn an order on the main trace: {'; '.join(lost)}."
    )


paper = Paper(
    "Muri: Multi-Resource Interleaving for Deep Learning Training (SIGCOMM 2022)",
    "Tables 1, 2, 4 and 5, Figures 4 and 6 to 14, and the 400 jobs measured on 64 V100 against "
    "ours, job by job. Published values are those of tables, prose and the artifact's stored "
    "results; bands are 25 % on either side of ratios, 10 % of measured means and makespans.",
    MuriExperiment,
    _runs,
    claims,
    plots,
    _notes,
)
