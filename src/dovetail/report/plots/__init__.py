"""Pictures worth putting in a paper: each function draws one and returns the figure.

`save(figure, stem)` writes it as PNG and SVG. Matplotlib is imported by the first call.
"""

from dovetail.report.plots.canvas import save, svg_text
from dovetail.report.plots.comparison import (
    change_by_size,
    change_by_user,
    change_words,
    job_ratios,
    mean_jct,
    others_of,
    user_changes,
)
from dovetail.report.plots.run import (
    gpu_seconds,
    jct_by_size,
    jct_distribution,
    load_over_time,
    occupancy,
    queue_lengths,
)

__all__ = [
    "change_by_size",
    "change_by_user",
    "change_words",
    "gpu_seconds",
    "jct_by_size",
    "jct_distribution",
    "job_ratios",
    "load_over_time",
    "mean_jct",
    "occupancy",
    "others_of",
    "queue_lengths",
    "save",
    "svg_text",
    "user_changes",
]
