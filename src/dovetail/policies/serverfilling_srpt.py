"""ServerFilling-SRPT: of the jobs of least remaining size that fill the cluster, the widest run.

At each event jobs are ordered by remaining size, which is the time left times the GPUs requested.
The shortest prefix that asks for all GPUs is the front; of it the widest jobs run, and so on until
every GPU is in use. So no GPU idles behind a wide job, while small jobs still go first. Where every
size is a power of two it is optimal for the mean JCT as the load nears 1.

With `by=arrival` (preset `serverfilling`) the order is that of submission, and no length is known.

Source: Grosof, Scully, Harchol-Balter, Scheller-Wolf: Optimal Scheduling in the Multiserver-job
Model under Heavy Traffic (SIGMETRICS 2023), sections 3 and 5. Knows: length.
Stops running jobs: yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.policy import Decision, Preset, register
from dovetail.core.view import Running, View
from dovetail.mechanisms.ranking.server_filling import fill_servers

SIZE, ARRIVAL = "size", "arrival"
PRESETS = {
    "serverfilling": Preset(
        "ServerFilling: of the earliest jobs that fill the cluster, the widest run.",
        {"by": ARRIVAL},
    ),
}


def _remaining(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.gpus
    return [s * float(gpus[j]) for s, j in zip(view.progress.left_s(jobs), jobs, strict=True)]


def _submitted(view: View, jobs: Sequence[int]) -> list[float]:
    submitted: list[float] = view.jobs.submit_s[list(jobs)].tolist()
    return submitted


@register("serverfilling-srpt", PRESETS)
@dataclass(frozen=True, slots=True)
class ServerFillingSrpt:
    """The widest of the first jobs in order that fill the cluster; preemptive."""

    by: str = SIZE

    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "migrate"})
    initial: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.by not in (SIZE, ARRIVAL):
            raise ValueError(f"by is {SIZE} or {ARRIVAL}, not '{self.by}'")

    @property
    def knows(self) -> frozenset[str]:
        """Returns length, unless the order is that of submission."""
        return frozenset({"length"} if self.by == SIZE else ())

    @property
    def order(self) -> Order:
        """Returns the order of the waiting jobs."""
        return Order(_remaining if self.by == SIZE else _submitted)

    def decide(self, view: View, memory: object) -> Decision:
        """Fills the cluster from the front of all jobs, the widest first."""
        keys = _running_remaining if self.by == SIZE else lambda r: view.jobs.submit_s[r.jobs]
        draft, because = fill_servers(view, keys)
        return Decision(draft, because=because)


def _running_remaining(running: Running) -> Floats:
    return running.left_s * running.gpus
