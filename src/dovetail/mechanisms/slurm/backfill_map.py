"""The backfill map: which nodes are not reserved for a waiting job, from when to when.

Slurm reserves whole nodes, for the time from a job's planned start to the end by its time limit,
both rounded down to `bf_resolution`. The map says nothing about running jobs: when they leave room
is asked anew for each job (`forecast_start`).

Source: `src/plugins/sched/backfill/backfill.c`, `_add_reservation`, `_test_resv_overlap`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BackfillMap:
    """Intervals of time in order, each with the nodes that are free of plans throughout."""

    begins: list[int]
    ends: list[int]
    nodes: list[int]
    resolution_s: int
    records: int = 1

    @staticmethod
    def of(now_s: int, window_s: int, resolution_s: int, nodes: int) -> BackfillMap:
        """Returns the map of a window in which all nodes are free of plans."""
        begin_s = now_s // resolution_s * resolution_s
        end_s = (now_s + window_s) // resolution_s * resolution_s
        return BackfillMap([begin_s], [end_s], [nodes], resolution_s)

    def free_throughout(self, start_s: float, end_s: float, nodes: int) -> tuple[int, float]:
        """Returns which of the nodes are free from start to end, and when to look again.

        The second is the end of the first interval behind which other nodes are free; infinite if
        there is none.
        """
        later_s, free = float("inf"), nodes
        last = len(self.ends) - 1
        for i, interval_end_s in enumerate(self.ends):
            if interval_end_s <= start_s:
                continue
            if i < last and later_s == float("inf"):
                next_nodes = nodes & self.nodes[i + 1]
                if next_nodes & ~(free & self.nodes[i]):
                    later_s = interval_end_s
            if self.begins[i] > end_s:
                break
            free &= self.nodes[i]
        return free, later_s

    def overlaps(self, start_s: int, end_s: int, nodes: int) -> bool:
        """True if some of the nodes are reserved at some time from start to end."""
        return any(
            self.ends[i] > start_s and begin_s < end_s and nodes & ~self.nodes[i]
            for i, begin_s in enumerate(self.begins)
        )

    def reserve(self, start_s: int, end_s: int, nodes: int) -> None:
        """Reserves nodes from start to end, rounded already; at least for one resolution."""
        start_s = max(start_s, self.begins[0])
        end_s = max(end_s, start_s + self.resolution_s)
        first = next((i for i, end in enumerate(self.ends) if end >= start_s), None)
        if first is None:
            return
        if self.ends[first] > start_s:
            self._split(first, start_s)
        place = first + 1
        while place < len(self.ends):
            if end_s < self.ends[place]:
                self._split(place, end_s)
            self.nodes[place] &= ~nodes
            if end_s == self.ends[place]:
                break
            place += 1
        self._merge(max(0, first - 1), place + 1)

    def _split(self, place: int, at_s: int) -> None:
        """Ends an interval at a time and begins another one there."""
        self.begins.insert(place + 1, at_s)
        self.ends.insert(place + 1, self.ends[place])
        self.nodes.insert(place + 1, self.nodes[place])
        self.ends[place] = at_s
        self.records += 1

    def _merge(self, first: int, last: int) -> None:
        """Joins the first pair of neighbours with the same nodes, as Slurm does: one a time."""
        for i in range(first, min(last, len(self.ends) - 1)):
            if self.nodes[i] == self.nodes[i + 1]:
                self.ends[i] = self.ends[i + 1]
                for column in (self.begins, self.ends, self.nodes):
                    del column[i + 1]
                return
