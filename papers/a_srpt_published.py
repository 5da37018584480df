"""What the A-SRPT paper prints: prose of section V, Figure 4's prose, and Table II.

The bars and curves of Figures 5 to 9 are not printed as numbers.
"""

TESTBED_GAIN = 0.44
"""Total flow time less than that of the worst baseline: "up to 44 %"."""
TESTBED_OVER_PERFECT = 1.07
JOBS_GAIN = (0.31, 0.91)
"""Figure 6: least and most over all baselines and numbers of jobs."""
SINGLES_GAIN = {0.8: 0.16, 0.0: 0.57}
"""Figure 7, by share of jobs on one GPU. The text does not say over whom; taken as over the best
baseline, since the larger gains of Figure 6 are over the worst."""
NIC_GAIN_SLOW = 0.92
"""Figure 8 at 1 Gbit/s, over the worst baseline: "up to 92 %"."""
NIC_GAIN_FAST = 0.12
"""Figure 8 at 50 Gbit/s, over WCS-Duration, the best baseline there."""
OVER_PERFECT = 1.14
"""Figure 9: with the forest over perfect prediction."""
ERRORS = {"forest": 369.0, "median": 563.0, "mean": 593.0}
"""Mean errors in iterations (section V.B.2-d)."""
EXACT_SHARE = 0.60
"""Jobs predicted correctly (Figure 4)."""
TRAINING_S = 84.0
"""To train on 80 % of 758,223 jobs (section V.A.1-c)."""
TABLE_2 = {"vgg19": (88.11, 82.96, 1.94, 55318.86), "gpt-175b": (10.14, 10.14, 1.52, 2288.12)}
"""Milliseconds: an iteration by Heavy-Edge and by the integer programme, then to find each."""
SPREAD = 0.25
"""Bands of ratios, on either side: the trace is not the paper's."""
HEAVY_EDGE_WORSE = 1.10
"""Heavy-Edge over the optimum on average at most (ALGORITHMS section 7.5)."""
