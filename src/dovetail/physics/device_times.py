"""How long an iteration takes on the GPUs of a node, over that on the type a job requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.core.job import JobTable
from dovetail.core.node_sets import types_of


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Iteration times by type of GPU, over that on the first type of the cluster.

    `node_types` has the type of each node, `of_type` the time on each type, both in small letters.
    `stated` are speeds on the second type over those on the first, which go before `of_type`.
    """

    node_types: Sequence[str]
    of_type: Mapping[str, float]
    jobs: JobTable
    stated: Mapping[tuple[str, str], float] = field(default_factory=dict)
    _by_request: dict[str, list[float]] = field(init=False, default_factory=dict)

    def on(self, job: int, node: int) -> float:
        """Returns the iteration time of a job on a node over that on the type it requests."""
        wanted = self.jobs.gpu_type[job]
        times = self._by_request.get(wanted)
        if times is None:
            times = self._by_request[wanted] = self._times(wanted)
        return times[node]

    def _times(self, wanted: str) -> list[float]:
        own = next((kind for kind in types_of(wanted) if kind in self.of_type), "")
        own_time = self.of_type.get(own, 1.0)
        return [
            1.0 / self.stated[own, kind]
            if (own, kind) in self.stated
            else self.of_type[kind] / own_time
            for kind in self.node_types
        ]


def stated_times(
    types: Sequence[str], jobs: JobTable, stated: Mapping[tuple[str, str], float]
) -> DeviceTimes | None:
    """Returns times by nodes' types that are alike but for the stated ones; None without any."""
    if not stated:
        return None
    kinds = [kind.casefold() for kind in types]
    return DeviceTimes(kinds, dict.fromkeys(kinds, 1.0), jobs, stated)
