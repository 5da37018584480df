"""Every policy against a simulator of forty lines that knows one pool of GPUs and no tricks.

Times are multiples of 1/4, so that sums are exact and schedules can be compared with `==`.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import INF, Row, play

Key = Callable[[int, dict[int, float]], float]


@st.composite
def traces(draw: st.DrawFn) -> list[Row]:
    t = 0.0
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        t += draw(st.sampled_from([0.0, 0.0, 0.25, 1.0, 2.5]))
        length = draw(st.sampled_from([0.25, 1.0, 1.0, 2.75, 4.0, 9.5]))
        rows.append(Row(draw(st.integers(1, 6)), length, submit_s=t))
    return rows


def reference(
    rows: list[Row], pool: int, choose: Callable[[float, list[int], dict[int, float]], list[int]]
) -> list[float]:
    """Returns the finishes when at each instant `choose` says who runs."""
    left = {j: r.duration_s for j, r in enumerate(rows)}
    finish = [INF] * len(rows)
    now, running = 0.0, list[int]()
    while left:
        submits = [r.submit_s for j, r in enumerate(rows) if j in left and r.submit_s > now]
        present = [j for j in left if rows[j].submit_s <= now]
        running = choose(now, present, left)
        assert sum(rows[j].gpus for j in running) <= pool
        then = min([*submits, *(now + left[j] for j in running)])
        for job in running:
            left[job] -= then - now
            if left[job] == 0:
                finish[job] = then
                del left[job]
        now = then
    return finish


class Greedy:
    """Serves by key; `keeps`: who runs goes on; `strict`: the first misfit blocks the rest."""

    def __init__(
        self, rows: list[Row], pool: int, key: Key, *, keeps: bool = True, strict: bool = False
    ) -> None:
        self.rows, self.pool, self.key = rows, pool, key
        self.keeps, self.strict = keeps, strict
        self.running: list[int] = []

    def __call__(self, now: float, present: list[int], left: dict[int, float]) -> list[int]:
        old = [j for j in self.running if j in left]
        chosen = list(old) if self.keeps else []
        free = self.pool - sum(self.rows[j].gpus for j in chosen)
        others = [j for j in present if j not in chosen]
        for job in sorted(others, key=lambda j: (self.key(j, left), j)):
            if self.rows[job].gpus <= free:
                chosen.append(job)
                free -= self.rows[job].gpus
            elif self.strict:
                break
        self.running = chosen
        return chosen


class Easy(Greedy):
    """Order of submission; a later job starts if the head's earliest start stands."""

    def __init__(self, rows: list[Row], pool: int) -> None:
        super().__init__(rows, pool, lambda j, left: 0.0)

    def __call__(self, now: float, present: list[int], left: dict[int, float]) -> list[int]:
        chosen = [j for j in self.running if j in left]
        queue = sorted(j for j in present if j not in chosen)
        while queue and self.fits(chosen, queue[0]):
            chosen.append(queue.pop(0))
        for job in queue[1:]:
            if self.fits(chosen, job):
                before = self.start_of(queue[0], now, chosen, left)
                if self.start_of(queue[0], now, [*chosen, job], left) <= before:
                    chosen.append(job)
        self.running = chosen
        return chosen

    def fits(self, chosen: list[int], job: int) -> bool:
        return sum(self.rows[j].gpus for j in chosen) + self.rows[job].gpus <= self.pool

    def start_of(self, head: int, now: float, chosen: list[int], left: dict[int, float]) -> float:
        """Returns when enough GPUs are free for the head, if nobody else starts."""
        free = self.pool - sum(self.rows[j].gpus for j in chosen)
        if free >= self.rows[head].gpus:
            return now
        for end, job in sorted((now + left[j], j) for j in chosen):
            free += self.rows[job].gpus
            if free >= self.rows[head].gpus:
                return end
        raise AssertionError("the head fits the empty pool")


def by_arrival(job: int, left: dict[int, float]) -> float:
    return 0.0


def by_left(job: int, left: dict[int, float]) -> float:
    return left[job]


SPREAD = ["none,best-fit", "none,most-free", "prefer,first-fit"]


@pytest.mark.parametrize("cluster", ["1x6", "3x2"])
@settings(max_examples=60)
@given(rows=traces(), placing=st.sampled_from(SPREAD))
def test_the_queue_policies_agree_with_the_reference(
    cluster: str, rows: list[Row], placing: str
) -> None:
    lengths = {j: r.duration_s for j, r in enumerate(rows)}

    def by_length(job: int, left: dict[int, float]) -> float:
        return lengths[job]

    def by_service(job: int, left: dict[int, float]) -> float:
        return left[job] * rows[job].gpus

    answers = {
        "fifo": Greedy(rows, 6, by_arrival, strict=True),
        "fifo:bypass=skip": Greedy(rows, 6, by_arrival),
        "sjf": Greedy(rows, 6, by_length),
        "sjf:bypass=strict": Greedy(rows, 6, by_length, strict=True),
        "backfill": Easy(rows, 6),
    }
    for policy, choose in answers.items():
        expected = reference(rows, 6, choose)
        assert play(rows, policy, cluster, placing=placing).finishes == expected, policy
    # Ranking anew at every event is what `repack` does.
    ranked = {
        "srtf": Greedy(rows, 6, by_left, keeps=False),
        "srsf": Greedy(rows, 6, by_service, keeps=False),
        "srtf:bypass=strict": Greedy(rows, 6, by_left, keeps=False, strict=True),
    }
    for policy, choose in ranked.items():
        expected = reference(rows, 6, choose)
        story = play(rows, policy, cluster, placing=f"{placing},repack")
        assert story.finishes == expected, policy


@settings(max_examples=60)
@given(rows=traces())
def test_jobs_of_one_gpu_leave_no_difference_between_keeping_and_repacking(
    rows: list[Row],
) -> None:
    narrow = [Row(1, r.duration_s, submit_s=r.submit_s) for r in rows]
    for policy in ("srtf", "srsf"):
        expected = reference(narrow, 3, Greedy(narrow, 3, by_left, keeps=False))
        kept = play(narrow, policy, "1x3").finishes
        assert sorted(kept) == sorted(expected), policy


@settings(max_examples=40)
@given(
    rows=traces(),
    later_s=st.sampled_from([0.5, 64.0, 2.0**30]),
    policy=st.sampled_from(["fifo", "backfill", "sjf", "srtf", "srsf", "max-min"]),
)
def test_the_clock_has_no_origin(rows: list[Row], later_s: float, policy: str) -> None:
    from dataclasses import replace

    moved = [replace(r, submit_s=r.submit_s + later_s) for r in rows]
    now = play(rows, policy, "3x2").finishes
    assert [f - later_s for f in play(moved, policy, "3x2").finishes] == now


@settings(max_examples=40)
@given(
    rows=traces(),
    policy=st.sampled_from(["fifo", "backfill", "sjf", "srtf", "srsf", "max-min"]),
)
def test_twice_as_slow_is_twice_as_long(rows: list[Row], policy: str) -> None:
    slow = [Row(r.gpus, 2 * r.duration_s, submit_s=2 * r.submit_s) for r in rows]
    once = play(rows, policy, "3x2").finishes
    assert play(slow, policy, "3x2").finishes == [2 * f for f in once]


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    gpus=st.sampled_from([1, 7, 64, 513]),
    threshold=st.sampled_from([0.1, 3.3, 60.0, 3250.0]),
    epoch_s=st.sampled_from([0.0, 3e6, 1.7e9]),
    policy=st.sampled_from(["tiresias:thresholds={}", "tiresias:thresholds={},inside=list"]),
)
def test_falls_never_get_lost_in_the_steps_of_the_clock(
    seed: int, gpus: int, threshold: float, epoch_s: float, policy: str
) -> None:
    import random

    draw = random.Random(seed)
    t = epoch_s
    rows = []
    for _ in range(6):
        t += draw.random() * threshold / gpus
        rows.append(Row(gpus, draw.random() * 4 * threshold / gpus + 1e-3, submit_s=t))
    story = play(rows, policy.format(threshold), f"1x{gpus}")
    assert len(story.ended()) == 6
    assert len(story.facts) < 400, "and nobody is woken in vain"
