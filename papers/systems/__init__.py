"""The comparison that the five papers never made: every policy, the same jobs, one physics.

One table over everything, who wins where, and which conclusions survive when what is assumed is
varied, switching costs are scaled, knowledge is blurred, and owners allow less. All policies run
with their default parameters; the exceptions are in `experiments`.
"""

from __future__ import annotations

from papers.frame.paper import Paper
from papers.systems.experiments import CYCLE, POLLUX, SLOW, SWITCHING
from papers.systems.plots import plots
from papers.systems.results import HEAVY, SystemsExperiment
from papers.systems.tables import claims, tables
from papers.systems.workloads import GPUS, GPUS_PER_NODE, LONGEST_S, NODES, WIDEST_GPUS, left_out


def _notes(experiment: SystemsExperiment) -> list[str]:
    notes = [
        f"{experiment.windows} windows of {experiment.jobs} jobs from each of "
        f"{', '.join(s.name for s in experiment.sources)}, on {NODES} nodes of {GPUS_PER_NODE} "
        f"GPUs, submissions stretched to an offered load of {HEAVY:g}.",
        f"Models of the whole zoo, drawn with {experiment.seeds} seeds; every job elastic, "
        "shareable and preemptible; deadlines at submission + 1.5 to 2.5 times the length.",
        f"Switching {SWITCHING}, --cycle {CYCLE}, measured interference, exact lengths and "
        "beliefs.",
        f"Played with one seed and varied in nothing, as they take long: {', '.join(SLOW)}. "
        f"Pollux as {POLLUX}; all others with their default parameters.",
        "x bound: mean JCT over the best bound for what the policy may do. Bounds of different "
        "powers differ, so compare it between policies of the same powers only.",
        "No owner asked for the elasticity: with fewer elastic jobs the ranking is another one.",
        "99 %, slowdown and makespan are ratios to the baseline's, too.",
    ]
    for source in experiment.sources:
        jobs, gpu_s = left_out(source, experiment.data)
        notes.append(
            f"{source.name}: jobs of more than {WIDEST_GPUS} of {GPUS} GPUs or over "
            f"{LONGEST_S / 3600:g} h are left out, {jobs:.0%} of the jobs and {gpu_s:.0%} of the "
            "GPU-time."
        )
    return notes


paper = Paper(
    "All systems on the same jobs",
    "One table over every policy of the five systems and their rivals, and which conclusions "
    "survive what.",
    SystemsExperiment,
    SystemsExperiment.runs,
    claims,
    plots,
    _notes,
    tables,
)
