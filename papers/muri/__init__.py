"""The paper Multi-Resource Interleaving for Deep Learning Training (Zhao et al., SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.frame.claim import Claim, Reproduction
from papers.frame.paper import Paper
from papers.frame.results import Results
from papers.frame.scope import Scope
from papers.muri import claims as muri_rows
from papers.muri import examples as muri_examples
from papers.muri import testbed as muri_testbed
from papers.muri.experiments import MuriExperiment, plan
from papers.muri.plots import plots
from papers.muri.testbed import Testbed, find_testbed


def find(scope: Scope, results: Results) -> Reproduction:
    """Returns all tables and figures of the paper anew."""
    planned, testbed = plan(scope), find_testbed(scope)
    asked = [*planned.runs(), *(testbed.runs() if testbed else ())]
    results.play(asked)
    return Reproduction(
        tuple(_rows(results, planned, testbed, scope)),
        tuple(plots(results, planned, testbed)),
        tuple(_notes(scope, results, planned, testbed)),
    )


def _rows(
    results: Results, planned: MuriExperiment, testbed: Testbed | None, scope: Scope
) -> Iterator[Claim]:
    yield from muri_examples.rows()
    if testbed is not None:
        yield from muri_testbed.rows(testbed, results)
    yield from muri_rows.rows(results, planned, muri_rows.stored(scope))


def _notes(
    scope: Scope, results: Results, planned: MuriExperiment, testbed: Testbed | None
) -> Iterator[str]:
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
    if testbed is None:
        yield "The testbed's trace and logs were not found: no Tables 4 and 5, no Figure 8."
    yield (
        "Comparisons take the overlapped cycle that the artifact computes, with the contention its "
        "authors measured and no cycle below a member's own iteration; a start takes each model's "
        "measured start-up. Simulations decide at events, the testbed every 360 s."
    )
    if scope.effort != "full":
        yield "Themis, whose leases take long to play, only on the shortest trace, if at all."
    lost = muri_rows.orders_that_move(results, planned)
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
    find,
)
