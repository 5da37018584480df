"""What a policy may believe: how fast jobs run (`Physics`) and how long they are (`Forecast`).

The simulator holds one `Physics` as the truth; policies get another instance, which may be the
same, fitted or noisy. Lengths never appear in a `Job`: a `Forecast` gives them, once, on arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.core.placement import Placement

Neighbour = tuple[int, Placement]
"""A job that shares a GPU, and where it runs."""


class Physics(Protocol):
    """How fast a job runs, relative to alone on its requested GPUs and well placed."""

    def speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns solo seconds of progress per second, 1.0 for alone, as requested, well placed."""
        ...

    def scale(self, job: int) -> float:
        """Returns the job's throughput on its requested GPUs over that on one GPU."""
        ...

    def fits_memory(self, occupants: Sequence[Neighbour], gpu_memory_bytes: float) -> bool:
        """Tells whether these jobs fit together into the memory of one GPU."""
        ...


class Forecast(Protocol):
    """How long jobs are, as far as the scheduler can know."""

    @property
    def knows(self) -> frozenset[str]:
        """Returns the knowledge it supplies, in the words of `core.policy.KNOWLEDGE`."""
        ...

    def length_s(self, job: int, now: float) -> float:
        """Returns the job's length alone on its requested GPUs, as believed on arrival."""
        ...
