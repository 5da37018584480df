"""The study of Elastic Resource Sharing for Distributed Deep Learning (Hwang et al., NSDI'21)."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.study.reproduce import afs_live, afs_rows
from dovetail.study.reproduce.afs_pictures import pictures
from dovetail.study.reproduce.afs_plan import Case, Outcomes, Plan, plan
from dovetail.study.reproduce.afs_workload import TABLE_3
from dovetail.study.reproduce.finding import Finding, Findings
from dovetail.study.reproduce.setting import Setting
from dovetail.study.reproduce.studies import Study
from dovetail.study.reproduce.trials import Trials

HEAVY = (3, 1, 5, 8, 2)
"""Traces that can show heavy contention, the likeliest first: Figure 7 calls 9 and 3 alike to 2."""


def find(setting: Setting, trials: Trials) -> Findings:
    """Returns all tables and figures of the paper anew."""
    planned = plan(setting)
    asked = planned.trials()
    outcomes = Outcomes(dict(zip(asked, trials.play(asked), strict=True)))
    return Findings(
        tuple(_rows(outcomes, planned)),
        tuple(pictures(outcomes, planned)),
        tuple(_notes(setting, planned)),
    )


def _rows(outcomes: Outcomes, planned: Plan) -> Iterator[Finding]:
    at_64 = [c for c in planned.cases if c.load is None]
    yield from afs_rows.table_3(planned)
    moderate = next((c for c in at_64 if c.workload.number == 9), at_64[0])
    yield from afs_rows.figure_2(outcomes, moderate)
    heavy = _first(at_64, HEAVY)
    if heavy is not None:
        yield from afs_rows.figure_2_heavy(outcomes, heavy)
    for case in planned.cases:
        yield from afs_rows.figure_5(outcomes, case)
    for figure in (
        afs_rows.figure_6,
        afs_rows.figure_9,
        afs_rows.figure_11,
        afs_rows.figure_13,
    ):
        yield from figure(outcomes, at_64)
    yield from afs_live.figure_7(outcomes, planned)
    yield from afs_live.figure_8(outcomes, planned)
    yield from afs_rows.appendix_a(outcomes)
    yield from afs_rows.varied(outcomes, planned)


def _first(cases: list[Case], numbers: tuple[int, ...]) -> Case | None:
    by_number = {c.workload.number: c for c in cases}
    return next((by_number[n] for n in numbers if n in by_number), None)


def _notes(setting: Setting, planned: Plan) -> Iterator[str]:
    if planned.clusters:
        there = [vc for vc, _ in planned.clusters]
        missing = [f"{vc.number} ({vc.name})" for vc in TABLE_3 if vc not in there]
        yield (
            "Philly's virtual clusters as the AFS authors converted them (TuftsNATLab/PCS, MIT). "
            f"Not in the data folder: {', '.join(missing) or 'none'}."
        )
    else:
        yield (
            "Generated months, not the paper's traces: no folder with them was found, so no "
            "published number of a trace is held against these. The log is public (github.com/"
            "msr-fiddle/philly-traces), its conversion by the AFS authors is in github.com/"
            "TuftsNATLab/PCS, simulation/traces; put trace_<cluster>.csv.gz into "
            "traces/philly/afs_vcs of a folder and give it with --data or DOVETAIL_DATA."
        )
    sliced = [c.workload for c in planned.cases if c.workload.busiest_days and c.load is None]
    if sliced:
        named = ", ".join(f"{w.number} ({len(w)} jobs)" for w in sliced)
        yield (
            f"Only the busiest {sliced[0].busiest_days:g} days of the large traces: {named}. "
            "At 64 GPUs they ask for more than the whole trace does. --full plays all of them."
        )
    seeds = planned.cases[0].seeds
    yield (
        f"{seeds} draw(s) of models among the nine of Table 4; means over the draws. Except for "
        "Figures 7 and 8 nothing but the number of GPUs decides how fast a job is, and changing "
        "it is free, as in the paper's simulator (section 5.1)."
    )


study = Study(
    "AFS: Elastic Resource Sharing for Distributed Deep Learning (NSDI 2021)",
    "Figures 2, 5, 6, 7a, 8, 9, 10, 11 and 13, Table 3, and the toy of appendix A. Published "
    "values are those that text and tables print; bands are 30 % on either side.",
    find,
)
