"""What the SJF-BSBF paper prints, and the bands of its claims."""

from __future__ import annotations

CLASSES = ("all", "large", "small")

TABLE_2 = {
    "fifo": (2317.0, 662.6),
    "sjf": (2319.0, 609.55),
    "tiresias": (2398.0, 664.73),
    "sjf-ffs": (2176.0, 530.36),
    "sjf-bsbf": (2129.0, 483.16),
}
"""Makespan and mean JCT in seconds, on the testbed."""

TABLES: dict[int, dict[str, dict[str, tuple[float, ...]]]] = {
    240: {
        "jct": {
            "fifo": (2.34, 3.92, 2.13),
            "sjf": (1.25, 3.50, 0.94),
            "tiresias": (1.51, 3.48, 1.23),
            "pollux": (1.04, 1.96, 0.91),
            "sjf-ffs": (1.23, 4.29, 0.81),
            "sjf-bsbf": (1.01, 3.38, 0.68),
        },
        "wait": {
            "fifo": (1.65, 2.17, 1.58),
            "sjf": (0.56, 1.76, 0.39),
            "tiresias": (0.81, 1.73, 0.68),
            "sjf-ffs": (0.18, 0.98, 0.07),
            "sjf-bsbf": (0.14, 0.89, 0.03),
        },
    },
    480: {
        "jct": {
            "fifo": (7.52, 10.06, 7.08),
            "sjf": (2.55, 7.00, 1.90),
            "tiresias": (5.09, 8.25, 4.59),
            "pollux": (4.69, 6.03, 4.51),
            "sjf-ffs": (1.89, 8.12, 0.99),
            "sjf-bsbf": (1.57, 6.13, 0.88),
        },
        "wait": {
            "sjf": (1.87, 5.35, 1.35),
            "tiresias": (4.41, 6.60, 4.04),
            "sjf-ffs": (0.73, 4.06, 0.21),
            "sjf-bsbf": (0.69, 3.62, 0.21),
        },
    },
}
"""Hours, of all, large and small jobs, by number of jobs. Queueing of FIFO at 480 jobs and of
Pollux is left out: the first is a copy of SJF-FFS's row, the second cannot be (FIX-17)."""

RATIOS = {
    ("sjf-bsbf", "tiresias", 240): (0.55, 0.79),
    ("sjf-bsbf", "sjf-ffs", 240): (0.73, 0.93),
    ("sjf-bsbf", "sjf-ffs", 480): (0.73, 0.93),
}
"""Bands of the ratio of mean JCTs."""

SWEEP = {
    1.0: (0.99, 1.01),
    1.25: (0.99, 1.01),
    1.5: (0.80, 0.96),
    1.75: (0.80, 0.96),
    2.0: (0.80, 0.96),
}
"""Bands of SJF-BSBF over SJF-FFS by interference ratio: equal up to 1.25, then 4 to 20 % better."""
