"""The paper GIMBAL: Taming Flexible Job Packing in Deep Learning Training Clusters (2025)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.frame.paper import Paper
from papers.gimbal.claims import claims
from papers.gimbal.experiments import GimbalExperiment
from papers.gimbal.plots import plots
from papers.gimbal.workloads import LOAD, STAND_INS


def _notes(experiment: GimbalExperiment) -> Iterator[str]:
    yield (
        f"Gains are paired: geometric means over {experiment.seeds} seeded workloads "
        f"({experiment.few} of them where something is varied), with Student's 95 % interval."
        + (
            f" Gavel on Alibaba's jobs over {experiment.gavel_seeds}."
            if experiment.gavel_seeds
            else " Alibaba's jobs and the assumptions are left to longer runs."
        )
    )
    yield (
        "The paper's traces are not published. Table 2 gives jobs and mean GPUs by class; sizes of "
        "1, 2, 4 and 8 are drawn most evenly for those means, durations from the trace, the "
        "longest for the large jobs, and scaled so that they ask for what 32 GPUs have in the "
        f"makespan printed for Gavel; they come at {LOAD:g} times what the cluster can do. "
        "Stopping a job costs 30 s, a change of limits 3.6 s."
    )
    listed = {paper: ours for models in STAND_INS.values() for paper, ours, _ in models}
    yield "Stand-ins: " + ", ".join(f"{ours} for {paper}" for paper, ours in listed.items()) + "."
    yield (
        "Slurm is FIFO with backfill that knows every length. Not here: Figure 13, as the grain of "
        "limits is no parameter, and the paper's own pairs of Figure 2, which it does not name."
    )
    if not experiment.data:
        yield (
            "GENERATED TRACES: Philly's and Alibaba's were not found. Put traces/philly/"
            "philly.csv.gz and traces/alibaba_gpu_v2020/gaia_pai-100k.first80000.csv.gz into a "
            "folder and give it with --data or DOVETAIL_DATA."
        )


paper = Paper(
    "GIMBAL: Taming Flexible Job Packing in Deep Learning Training Clusters (2025)",
    "Figures 2, 8 to 12, 14 and 15 and the sets of Table 3, the example of section 4.1, and the "
    "gain by interference. Published values are those that prose and tables print; on substitutes "
    "for its traces the signs and the bands of the gains count, not the hours.",
    GimbalExperiment,
    GimbalExperiment.runs,
    claims,
    plots,
    _notes,
)
