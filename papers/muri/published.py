"""What the Muri paper prints, and what its authors stored beside their programs.

Tables 1, 2, 4 and 5 and the prose of section 6. The curves of the figures are not printed as
numbers; the artifact holds those of one trace, which are read from the data folder.
"""

from __future__ import annotations

STAGES = {
    "shufflenet_v2_x1_0": ("ShuffleNet", 78.0, 6.0, 2.0),
    "vgg19": ("VGG19", 28.0, 26.0, 41.0),
    "gpt2": ("GPT-2", 0.09, 85.0, 28.0),
    "a2c": ("A2C", 91.0, 3.0, 0.2),
}
"""Table 1: per cent of an iteration on 16 GPUs spent loading and preprocessing (two columns
there, one stage in the artifact), propagating, synchronising."""

SHARED = {
    "shufflenet_v2_x1_0": ("ShuffleNet", 2041.0, 1756.0),
    "a2c": ("A2C", 1811.0, 878.0),
    "gpt2": ("GPT-2", 134.0, 55.0),
    "vgg16": ("VGG16", 890.0, 220.0),
}
"""Table 2: samples per second alone, and when all four take turns."""
SHARED_SUM = 2.00
"""Table 2: the sum of the four over the speeds alone."""
SHARED_BAND = 0.05
"""How near to Table 2 the rule of the authors' own program has to come."""

TESTBED = {
    ("srtf", "muri-s"): (2.12, 1.56, 3.31),
    ("srsf", "muri-s"): (2.03, 1.59, 3.82),
    ("tiresias", "muri-l"): (2.59, 1.48, 2.54),
    ("themis", "muri-l"): (3.56, 1.47, 2.60),
}
"""Tables 4 and 5: mean JCT, makespan and 99th percentile over Muri's."""

RANGES = {
    "known": ((1.13, 2.26), (1.0, 1.65), (1.36, 4.57)),
    "unknown": ((1.53, 6.15), (1.0, 1.55), (1.21, 5.37)),
}
"""Section 6.3: least and most over traces 1 to 4 and 1' to 4', in the same order."""

WITHOUT_BLOSSOM = (1.14, 1.06)
"""Section 6.4: at most, over Muri-L, of mean JCT and makespan."""
TYPES = {1: (1.0, 1.0), 2: (1.42, 1.49), 4: (2.26, 3.92)}
"""Section 6.4: SRTF over Muri-S and Tiresias over Muri-L by number of job types."""
NOISE_AT_0_2 = 1.01
NOISE_AT_1 = 1.3
"""Section 6.4: mean JCT over that without noise: "less than 1 %" more at 0.2, 1.3 at 1."""
SPREAD = 0.25
"""Bands of ratios on the published traces (docs/claims/reproduction-muri.md)."""
