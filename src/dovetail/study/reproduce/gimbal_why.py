"""Why rows of the GIMBAL study miss, each by the row of this study that shows it."""

from __future__ import annotations

WHY = {
    "one peak": "to be said",
    "samples": "to be said",
    "jct": "to be said",
    "queue": "to be said",
    "longer": "to be said",
    "met": "to be said",
    "makespan": "to be said",
    "peak": "to be said",
    "early exit": "to be said",
    "steps": "to be said",
    "Lucid unequal": "to be said",
    "Lucid + LISS": "to be said",
    "Lucid + LGRR": "to be said",
    "Gandiva unequal": "to be said",
    "Gandiva + LISS": "to be said",
    "Gandiva + LGRR": "to be said",
    "Gavel unequal": "to be said",
    "Gavel + LISS": "to be said",
    "Gavel + LGRR": "to be said",
}
