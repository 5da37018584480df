"""Why rows of the GIMBAL study miss, each by the rows of this study that show it."""

from __future__ import annotations

LUCID_WHY = (
    "how far the paper relaxes Lucid's score and how much its pairs slow each other are not "
    "published, and the gain is a matter of both: see the gain by interference, where Lucid "
    "packing anybody gains at ratios near 1 and loses at the measured ones"
)
GANDIVA_WHY = (
    "Gandiva, which packs whoever fits, loses by unequal packing itself, and what limits and "
    "samples bring back their search pays: see how boldly is packed (relaxed without GIMBAL below "
    "1, equal sizes only above) and limits at 0, 3.6 and 10 s"
)
GAVEL_WHY = (
    "Gavel makes new pairs every round, which ends each search: its steps of 3.6 s and the bad "
    "settings tried are paid again and again (see limits at 0, 3.6 and 10 s); the paper gives this "
    "reason for its own small gain. Were limits worth more than by the straight line assumed, "
    "there would be a gain (docs/claims/reproduction-gimbal.md)"
)
WHY = {
    "pairs": "in our stand-ins no limit brings more pairs above serial execution",
    "one peak": (
        "how the loss falls between the ends of a limit is assumed, a straight line "
        "(docs/concepts/physics.md); with its square all pairs have one peak, with its root fewer"
    ),
    "samples": (
        "samples move between the workers of the large job; the small one beside it, and an "
        "exchange between nodes, stay as slow: at ratios of 1.5 and less all pairs gain, "
        "and the measured ones of two heavy models are near 2"
    ),
    "jct": LUCID_WHY,
    "queue": LUCID_WHY,
    "longer": (
        "who starts sooner beside another is short, as Lucid serves the shortest first, and the "
        "long jobs are the hosts that it slows"
    ),
    "slurm": "few workloads: jobs come too late to wait",
    "met": GANDIVA_WHY,
    "makespan": GAVEL_WHY,
    "peak": GAVEL_WHY,
    "early exit": (
        "our searches are short: a limit above what a job uses is skipped, so the full search "
        "has eight settings left to try"
    ),
    "quality": "the limits tried after three failures were better",
    "steps": "more settings were tried than limits there are",
    "example": "the search found another limit than a half",
    **{f"Lucid {step}": LUCID_WHY for step in ("unequal", "+ LISS", "+ LGRR")},
    **{f"Gandiva {step}": GANDIVA_WHY for step in ("unequal", "+ LISS", "+ LGRR")},
    **{f"Gavel {step}": GAVEL_WHY for step in ("unequal", "+ LISS", "+ LGRR")},
}
"""By row; those of rows that hold on every trace played are there for traces that were not."""
