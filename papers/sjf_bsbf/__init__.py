"""The paper *Scheduling Deep Learning Jobs via Wise Resource Sharing* (SJF-BSBF)."""

from __future__ import annotations

from papers.frame.paper import Paper
from papers.sjf_bsbf.claims import claims, runs
from papers.sjf_bsbf.experiments import SjfBsbfExperiment
from papers.sjf_bsbf.plots import plots


def _notes(experiment: SjfBsbfExperiment) -> list[str]:
    notes = [
        f"Means over {experiment.seeds} seeded workloads"
        + (
            f", pollux over {experiment.pollux_seeds}."
            if experiment.pollux_seeds
            else "; no pollux."
        ),
        "Jobs and times are drawn from Pollux's published workloads; the share of large jobs "
        "(12.2 %) and the mean lengths (0.55 h up to 4 GPUs, 1.75 h above) are what the tables "
        "of the paper imply.",
        "Interference is measured where it was (Gavel's pairs), by the law fitted to those "
        "elsewhere; the paper's own ratios, of up to 6, are not published.",
        "GPUs are those the speeds were measured on (T4, 16 GiB); placing a stopped job again "
        "takes 30 s.",
    ]
    if not experiment.data:
        notes.append(
            "GENERATED WORKLOADS: Pollux's were not found. They are in petuum/adaptdl, branch "
            "osdi21-artifact, simulator; put them into DATA/data/pollux-osdi21, say --data DATA."
        )
    return notes


paper = Paper(
    "SJF-BSBF: scheduling by wise resource sharing",
    "Tables II, III and IV and Figures 2, 4, 5 and 6, of the schedulers that run here.",
    SjfBsbfExperiment,
    runs,
    claims,
    plots,
    _notes,
)
