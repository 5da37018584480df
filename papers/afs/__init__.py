"""The paper Elastic Resource Sharing for Distributed Deep Learning (Hwang et al., NSDI'21)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.afs import claims as afs_rows
from papers.afs import explanations as afs_why
from papers.afs import machines as afs_live
from papers.afs.experiments import AfsCase, AfsExperiment, plan
from papers.afs.plots import plots
from papers.afs.workloads import TABLE_3
from papers.frame.claim import Claim, Reproduction
from papers.frame.paper import Paper
from papers.frame.results import Results
from papers.frame.scope import Scope

HEAVY = (3, 1, 5, 8, 2)
"""Traces that can show heavy contention, the likeliest first: Figure 7 calls 9 and 3 alike to 2."""


def find(scope: Scope, results: Results) -> Reproduction:
    """Returns all tables and figures of the paper anew."""
    planned = plan(scope)
    whole = scope.effort == "full"
    asked = [*planned.runs(), *afs_why.explaining_runs(planned, whole=whole)]
    results.play(asked)
    return Reproduction(
        (*_rows(results, planned), *afs_why.explanations(results, planned, whole=whole)),
        tuple(plots(results, planned)),
        tuple(_notes(scope, planned)),
    )


def _rows(results: Results, planned: AfsExperiment) -> Iterator[Claim]:
    at_64 = [c for c in planned.cases if c.load is None]
    yield from afs_rows.table_3(planned)
    moderate = next((c for c in at_64 if c.workload.number == 9), at_64[0])
    yield from afs_rows.figure_2(results, moderate)
    heavy = _first(at_64, HEAVY)
    if heavy is not None:
        yield from afs_rows.figure_2_heavy(results, heavy)
    yield from afs_rows.ranges(results, at_64)
    for case in planned.cases:
        yield from afs_rows.figure_5(results, case)
    for figure in (afs_rows.figure_6, afs_rows.figure_9, afs_rows.figure_11, afs_rows.figure_13):
        yield from figure(results, [c for c in at_64 if "afs-s" in c.policies])
    yield from afs_live.figure_7(results, planned)
    yield from afs_live.figure_8(results, planned)
    yield from afs_rows.appendix_a(results)
    yield from afs_rows.varied(results, planned)


def _first(cases: list[AfsCase], numbers: tuple[int, ...]) -> AfsCase | None:
    by_number = {c.workload.number: c for c in cases}
    return next((by_number[n] for n in numbers if n in by_number), None)


def _notes(scope: Scope, planned: AfsExperiment) -> Iterator[str]:
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
    if planned.clusters and scope.effort == "default":
        yield (
            "Traces of more than 5,000 jobs: one draw, no Themis, one load beside 64 GPUs; the "
            "one of more than 30,000 only at 64 GPUs and under the policies of Figure 5. Themis, "
            "whose leases take long to play, only at 64 GPUs and with the first draw. --full "
            "leaves nothing out but Themis' other draws."
        )
    case = planned.cases[0]
    drawn = len(case.draws) - 1 if case.workload.file else len(case.draws)
    authors = "the models that the files give, which are the authors' own draw, and " * (
        drawn < len(case.draws)
    )
    yield (
        f"Models: {authors}{drawn} draws by seed among the nine of Table 4. Figures 2, 6, 7a and "
        "the pictures show the first draw, orders hold for the mean over all. Except for Figures "
        "7 and 8 nothing but the number of GPUs decides how fast a job is, and changing it is "
        "free, as in the paper's simulator (section 5.1)."
    )


paper = Paper(
    "AFS: Elastic Resource Sharing for Distributed Deep Learning (NSDI 2021)",
    "Figures 2, 5, 6, 7a, 8, 9, 10, 11 and 13, Table 3, and the toy of appendix A. Published "
    "values are those that text and tables print; bands are 30 % on either side.",
    find,
)
