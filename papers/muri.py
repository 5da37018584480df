"""The study of Multi-Resource Interleaving for Deep Learning Training (Zhao et al., SIGCOMM'22)."""

from __future__ import annotations

from collections.abc import Iterator

from papers import muri_examples, muri_rows, muri_testbed
from papers.finding import Finding, Findings
from papers.muri_figures import pictures
from papers.muri_plan import Outcomes, Plan, plan
from papers.muri_testbed import Bed, bed
from papers.setting import Setting
from papers.studies import Study
from papers.trials import Trials


def find(setting: Setting, trials: Trials) -> Findings:
    """Returns all tables and figures of the paper anew."""
    planned, testbed = plan(setting), bed(setting)
    asked = [*planned.trials(), *(testbed.trials() if testbed else ())]
    outcomes = Outcomes(dict(zip(asked, trials.play(asked), strict=True)))
    return Findings(
        tuple(_rows(outcomes, planned, testbed, setting)),
        tuple(pictures(outcomes, planned, testbed)),
        tuple(_notes(setting, outcomes, planned, testbed)),
    )


def _rows(
    outcomes: Outcomes, planned: Plan, testbed: Bed | None, setting: Setting
) -> Iterator[Finding]:
    yield from muri_examples.rows()
    if testbed is not None:
        yield from muri_testbed.rows(testbed, outcomes)
    yield from muri_rows.rows(outcomes, planned, muri_rows.stored(setting))


def _notes(
    setting: Setting, outcomes: Outcomes, planned: Plan, testbed: Bed | None
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
    if setting.effort != "full":
        yield "Themis, whose leases take long to play, only on the shortest trace, if at all."
    lost = muri_rows.orders_that_move(outcomes, planned)
    yield (
        "No variation of the rule of the cycle turns an order on the main trace."
        if not lost
        else f"Variations that turn an order on the main trace: {'; '.join(lost)}."
    )


study = Study(
    "Muri: Multi-Resource Interleaving for Deep Learning Training (SIGCOMM 2022)",
    "Tables 1, 2, 4 and 5, Figures 4 and 6 to 14, and the 400 jobs measured on 64 V100 against "
    "ours, job by job. Published values are those of tables, prose and the artifact's stored "
    "results; bands are 25 % on either side of ratios, 10 % of measured means and makespans.",
    find,
)
