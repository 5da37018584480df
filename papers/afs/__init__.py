"""The paper Elastic Resource Sharing for Distributed Deep Learning (Hwang et al., NSDI'21)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.afs import claims as figures
from papers.afs.experiments import AfsExperiment
from papers.afs.explanations import explaining_claims, explaining_runs
from papers.afs.machines import figure_7, figure_8
from papers.afs.plots import plots
from papers.afs.workloads import TABLE_3
from papers.frame.claim import Claim
from papers.frame.experiment import Playable
from papers.frame.paper import Paper

HEAVY = (3, 1, 5, 8, 2)
"""Traces that can show heavy contention, the likeliest first: Figure 7 calls 9 and 3 alike to 2."""


def _runs(planned: AfsExperiment) -> list[Playable]:
    return [*planned.runs(), *explaining_runs(planned)]


def _claims(planned: AfsExperiment) -> Iterator[Claim]:
    at_64 = planned.at_64_gpus
    by_number = {case.workload.number: case for case in at_64}
    yield from figures.table_3(planned)
    yield from figures.figure_2(by_number.get(9, at_64[0]))
    heavy = next((by_number[n] for n in HEAVY if n in by_number), None)
    if heavy is not None:
        yield from figures.figure_2_heavy(heavy)
    yield from figures.ranges(at_64)
    for case in planned.cases:
        yield from figures.figure_5(case)
    for figure in (figures.figure_6, figures.figure_9, figures.figure_11, figures.figure_13):
        yield from figure([c for c in at_64 if "afs-s" in c.policies])
    yield from figure_7(planned)
    yield from figure_8(planned)
    yield from figures.appendix_a(planned.results)
    yield from figures.varied(planned)
    yield from explaining_claims(planned)


def _notes(planned: AfsExperiment) -> Iterator[str]:
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
    if planned.clusters and planned.scope.effort == "default":
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
    AfsExperiment,
    _runs,
    _claims,
    plots,
    _notes,
)
