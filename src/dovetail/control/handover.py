"""GPUs that are free late, where a runtime cannot cancel an order under way.

A job that still carries out an earlier order (an expansion, a restart) releases GPUs only after
it, and the next job on them waits (AFS section 5.3, "No RC"). Within one decision the first job
to take GPUs of a node takes those that are free last: the worst case.
"""

from __future__ import annotations

from dovetail.core.placement import Placement


class Handover:
    """The GPUs given up late in one decision, by node."""

    def __init__(self) -> None:
        self._late: dict[int, list[tuple[float, int]]] = {}

    def give_up(self, before: Placement, after: Placement | None, free_s: float) -> None:
        """Records that the GPUs a job loses are free only from `free_s` on."""
        kept = {} if after is None else after.by_node()
        for node, gpus in before.by_node().items():
            lost = gpus - kept.get(node, 0)
            if lost > 0:
                self._late.setdefault(node, []).append((free_s, lost))

    def take(self, before: Placement | None, after: Placement, now: float) -> float:
        """Returns when the GPUs that a job gains are all free, and takes them."""
        if not self._late:
            return now
        held = {} if before is None else before.by_node()
        ready_s = now
        for node, gpus in after.by_node().items():
            wanted = gpus - held.get(node, 0)
            late = self._late.get(node, [])
            while wanted > 0 and late:
                free_s, count = late.pop(0)
                ready_s = max(ready_s, free_s)
                if count > wanted:
                    late.insert(0, (free_s, count - wanted))
                wanted -= count
        return ready_s


NO_HANDOVER = Handover()
"""Where all GPUs are free at once."""
