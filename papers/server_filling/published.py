"""What the authors' program prints, as their plots have it.

Mean response times from isaacg1/msj-simulator (77634e4, no licence stated): `plots/plots.py` for
the loads of both settings, `srpt-data.txt` for the two greedy policies. Values of at least 1000
stand there for a queue that grew without end. The unit is the mean time of a job of 8 GPUs.
"""

from __future__ import annotations

EXPONENTIAL, HYPEREXPONENTIAL = "exponential", "hyperexponential"

FIRST, SRPT, ONE = "serverfilling", "serverfilling-srpt", "srpt-1"
MEANS = {
    (EXPONENTIAL, 0.84): {FIRST: 1.125249283, SRPT: 0.8337278572, ONE: 0.3342619083},
    (EXPONENTIAL, 0.9): {FIRST: 1.583788779, SRPT: 0.9757400204, ONE: 0.4420396214},
    (EXPONENTIAL, 0.95): {FIRST: 2.768426679, SRPT: 1.257869341, ONE: 0.6799454124},
    (EXPONENTIAL, 0.98): {FIRST: 6.265690811, SRPT: 1.887711189, ONE: 1.260640588},
    (HYPEREXPONENTIAL, 0.84): {FIRST: 3.276736417, SRPT: 0.8486694754, ONE: 0.300132878},
    (HYPEREXPONENTIAL, 0.9): {FIRST: 5.882706987, SRPT: 0.9725634559, ONE: 0.3778099216},
    (HYPEREXPONENTIAL, 0.95): {FIRST: 12.83944916, SRPT: 1.20084093, ONE: 0.5407043723},
    (HYPEREXPONENTIAL, 0.98): {FIRST: 35.12404591, SRPT: 1.681208416, ONE: 0.9765305659},
}
"""By setting and load; SRPT-1 is one server eight times as fast, which no policy can beat."""
GREEDY = {
    0.5: {"srsf": 0.770848033988072, "srsf:bypass=strict": 1.119144156069345},
    0.6: {"srsf": 1.156732268158956},
}
"""FirstFitSRPT and GreedySRPT on the exponential jobs; the latter is unstable from 0.6 on, and
both from 0.7 on."""
