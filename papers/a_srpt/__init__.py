"""The paper Prediction-Assisted Online Distributed Deep Learning Workload Scheduling."""

from __future__ import annotations

from collections.abc import Iterator

from papers.a_srpt.beyond import claims
from papers.a_srpt.experiments import LOGS, ASrptExperiment
from papers.a_srpt.plots import plots
from papers.a_srpt.workloads import ALL_JOBS, SINGLE_SHARE, WIDTH_SHARES, WIDTHS
from papers.frame.paper import Paper


def _notes(planned: ASrptExperiment) -> Iterator[str]:
    base = planned.base
    yield (
        "A generated trace, not the paper's: PAI's tables were not available. Published are the "
        "mean and median run time, that 65 % of jobs come in groups of five or more, the pace "
        f"({ALL_JOBS:,} jobs in 60 days) and that over 70 % have one GPU. Assumed: "
        f"{SINGLE_SHARE:.0%} have one, the others "
        + ", ".join(f"{w} ({share:.0%})" for w, share in zip(WIDTHS, WIDTH_SHARES, strict=True))
        + "; repeats run within about 20 % of one another. Each group has one model of Table I "
        "that has a plan for its GPUs."
    )
    yield (
        "The paper states no load. Ours is 1: the GPU-time of all jobs, each placed at its best, "
        f"is what {planned.cluster.gpus:,} GPUs have while jobs come. Another share of jobs on one "
        "GPU asks for more or less, unless it says that the load is kept."
    )
    if base.total < ALL_JOBS:
        yield (
            f"Cut for time: {base.total:,} jobs in all for {ALL_JOBS:,}, of which {base.jobs:,} "
            f"are played where the paper plays 75,000, on {planned.cluster.servers} servers; draws "
            f"of the trace: {planned.seeds} (--seeds for more). "
            "Windows are shorter accordingly, run times are not. --full plays the published sizes."
        )
    yield (
        "Predictions: the forest learns from the first 80 % of the trace as in the paper, then "
        "from jobs that end in the run, and is trained anew after every twentieth of all jobs. "
        "Sweeps (Figures 6 to 8 and below) are told the mean of the group instead, which costs no "
        "training; Figure 9 holds both."
    )
    if not planned.scope.has(*LOGS.values()):
        yield "Real logs for prediction errors (traces/dirlab) were not found in the data folder."


paper = Paper(
    "A-SRPT: Prediction-Assisted Online Distributed Deep Learning Workload Scheduling",
    "Figures 4 to 9, Table II and Theorem 1. Published values are those of prose and table; bands "
    "are 25 % on either side of ratios, 10 % for Heavy-Edge over the optimum.",
    ASrptExperiment,
    ASrptExperiment.runs,
    claims,
    plots,
    _notes,
)
