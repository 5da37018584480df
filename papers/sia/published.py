"""What the Sia paper prints: tables 3 and 4 (the authors' preprint of SOSP 2023)."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """Hours: mean and 99th percentile of the JCT, makespan, and GPU-hours a job."""

    jct: float
    p99: float
    makespan: float
    gpu_h: float


TABLE_3 = {
    ("philly", "sia"): Printed(0.6, 9.5, 14.2, 4.0),
    ("philly", "pollux"): Printed(1.0, 14.9, 24.5, 5.6),
    ("saturn", "sia"): Printed(0.7, 10.9, 14.9, 4.8),
    ("saturn", "pollux"): Printed(1.0, 15.0, 25.5, 5.9),
}
"""On T4, RTX and A100. Gavel with tuned jobs: a mean of 1.9 and 2.5 h."""
TABLE_4 = {"sia": Printed(1.9, 18.1, 21.4, 8.4), "pollux": Printed(2.0, 19.3, 21.7, 8.6)}
"""On 16 nodes of four T4, Philly. Gavel with tuned jobs: a mean of 4.3 h."""
