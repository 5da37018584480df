"""The comparison that the five papers never made: every policy, the same jobs, one physics.

One table over everything, who wins where, and which conclusions survive when what is assumed is
varied, switching costs are scaled, knowledge is blurred, and owners allow less. All policies run
with their default parameters; the exceptions are in `systems_plan`.
"""

from __future__ import annotations

from papers.finding import Findings
from papers.setting import Setting
from papers.studies import Study
from papers.systems_beds import (
    GPUS,
    GPUS_PER_NODE,
    LONGEST_S,
    NODES,
    WIDEST_GPUS,
    left_out,
)
from papers.systems_plan import POLLUX, SLOW
from papers.systems_results import HEAVY, Results
from papers.systems_trial import CYCLE, SWITCHING
from papers.trials import Trials


def find(setting: Setting, trials: Trials) -> Findings:
    """Returns the tables, the claims with verdicts, and the pictures."""
    from papers.systems_pictures import pictures
    from papers.systems_sheets import (
        as_findings,
        changes,
        claims,
        everybody,
        survivals,
        winners,
    )

    results = Results(trials, setting)
    results.prepare()
    found = survivals(results)
    return Findings(
        as_findings(results),
        pictures(results, found),
        _notes(results),
        [everybody(results), winners(results), claims(results, found), changes(results)],
    )


def _notes(results: Results) -> list[str]:
    notes = [
        f"{results.windows} windows of {results.jobs} jobs from each of "
        f"{', '.join(s.name for s in results.sources)}, on {NODES} nodes of {GPUS_PER_NODE} GPUs, "
        f"submissions stretched to an offered load of {HEAVY:g}.",
        f"Models of the whole zoo, drawn with {results.seeds} seeds; every job elastic, shareable "
        "and preemptible; deadlines at submission + 1.5 to 2.5 times the length.",
        f"Switching {SWITCHING}, --cycle {CYCLE}, measured interference, exact lengths and "
        "beliefs.",
        f"Played with one seed and varied in nothing, as they take long: {', '.join(SLOW)}. "
        f"Pollux as {POLLUX}; all others with their default parameters.",
        "x bound: mean JCT over the best bound for what the policy may do. Bounds of different "
        "powers differ, so compare it between policies of the same powers only.",
        "No owner asked for the elasticity: with fewer elastic jobs the ranking is another one.",
        "99 %, slowdown and makespan are ratios to the baseline's, too.",
    ]
    for source in results.sources:
        jobs, gpu_s = left_out(source, results.data)
        notes.append(
            f"{source.name}: jobs of more than {WIDEST_GPUS} of {GPUS} GPUs or over "
            f"{LONGEST_S / 3600:g} h are left out, {jobs:.0%} of the jobs and {gpu_s:.0%} of the "
            "GPU-time."
        )
    return notes


study = Study(
    "All systems on the same jobs",
    "One table over every policy of the five systems and their rivals, and which conclusions "
    "survive what.",
    find,
)
