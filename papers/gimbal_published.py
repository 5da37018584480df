"""What the GIMBAL paper prints, and the bands that ALGORITHMS section 7.3 asks for."""

from __future__ import annotations

JCT = {"philly": 1.28, "alibaba": 1.26}
"""Mean JCT of Lucid over that with GIMBAL (Figure 8)."""
QUEUE = {"philly": 1.87, "alibaba": 1.51}
"""Mean queueing of Lucid over that with GIMBAL (Figure 9a)."""
MET = {"philly": (90, 110), "alibaba": (177, 233)}
"""Jobs that meet their deadlines: Gandiva, and with GIMBAL (section 7.2)."""
MAKESPAN_H = {"philly": (4.5, 4.05), "alibaba": (17.6, 15.9)}
"""Hours of Gavel, and with GIMBAL (section 7.2; 4.5 over 4.05 is 1.11, printed as 1.12)."""
SLURM = {"jct": 3.75, "queue": 5.8, "met": 16.0}
"""On Alibaba's jobs: mean JCT and queueing over those of Lucid with GIMBAL, deadlines met."""
ABLATION = {
    "unequal": {"jct": 1.05, "met": 1.04, "makespan": 1.01},
    "+ LISS": {"jct": 1.18, "met": 1.11, "makespan": 1.10},
    "+ LGRR": {"jct": 1.28, "met": 1.13, "makespan": 1.11},
}
"""Gain over the upper scheduler with so many mechanisms (Figure 12, 16 GPUs, 100 jobs)."""
ABLATION_QUEUE = {"unequal": 1.09, "+ LISS": 1.54, "+ LGRR": 1.63}
STEP_S = {"LISS": 9.0, "LGRR": 39.0}
"""Seconds of one step of the search (Figure 14)."""
SEARCH_S = (480.0, 250.0)
"""Seconds of a full search, and with early exit (Figure 15a)."""
QUALITY = 0.994
"""Mean JCT after the full search over that after early exit (Figure 15b)."""
SWITCH_S = 3.6

JCT_BAND = (1.1, 1.4)
MAKESPAN_BAND = (1.03, 1.2)
LEAST = 0.98
"""Each mechanism adds; one that subtracts more than 2 % is a miss."""
QUALITY_LEAST, TIME_MOST = 0.98, 0.6
