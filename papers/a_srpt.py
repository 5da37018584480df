"""The study of Prediction-Assisted Online Distributed Deep Learning Workload Scheduling."""

from __future__ import annotations

from collections.abc import Iterator

from papers import a_srpt_rows, a_srpt_why
from papers.a_srpt_figures import pictures
from papers.a_srpt_plan import LOGS, Outcomes, Plan, plan
from papers.a_srpt_workload import (
    ALL_JOBS,
    SINGLE_SHARE,
    WIDTH_SHARES,
    WIDTHS,
)
from papers.finding import Findings
from papers.setting import Setting
from papers.studies import Study
from papers.trials import Trials


def find(setting: Setting, trials: Trials) -> Findings:
    """Returns all tables and figures of the paper anew."""
    planned = plan(setting)
    asked = planned.trials()
    outcomes = Outcomes(dict(zip(asked, trials.play(asked), strict=True)))
    return Findings(
        (*a_srpt_rows.rows(outcomes, planned), *a_srpt_why.rows(outcomes, planned)),
        tuple(pictures(outcomes, planned)),
        tuple(_notes(setting, planned)),
    )


def _notes(setting: Setting, planned: Plan) -> Iterator[str]:
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
        f"is what {planned.bed.gpus:,} GPUs have while jobs come. Another share of jobs on one GPU "
        "asks for more or less, unless it says that the load is kept."
    )
    if base.total < ALL_JOBS:
        yield (
            f"Cut for time: {base.total:,} jobs in all for {ALL_JOBS:,}, of which {base.jobs:,} "
            f"are played where the paper plays 75,000, on {planned.bed.servers} servers; draws of "
            f"the trace: {planned.seeds} (--seeds for more). "
            "Windows are shorter accordingly, run times are not. --full plays the published sizes."
        )
    yield (
        "Predictions: the forest learns from the first 80 % of the trace as in the paper, then "
        "from jobs that end in the run, and is trained anew after every twentieth of all jobs. "
        "Sweeps (Figures 6 to 8 and below) are told the mean of the group instead, which costs no "
        "training; Figure 9 holds both."
    )
    if not setting.has(*LOGS.values()):
        yield "Real logs for prediction errors (traces/dirlab) were not found in the data folder."


study = Study(
    "A-SRPT: Prediction-Assisted Online Distributed Deep Learning Workload Scheduling",
    "Figures 4 to 9, Table II and Theorem 1. Published values are those of prose and table; bands "
    "are 25 % on either side of ratios, 10 % for Heavy-Edge over the optimum.",
    find,
)
