"""What must hold of every run, reckoned from its facts by plain, slow code.

Nothing here shares code with the tally or the world: an error in one cannot hide in the other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.core.cluster import DOWN
from dovetail.core.messages import (
    Ended,
    Fact,
    NodeChanged,
    Retimed,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
)
from dovetail.core.placement import Placement
from dovetail.record.metrics import gpu_seconds
from dovetail.record.tally import Tally
from dovetail.sim.scene import Scene

RELATIVE = 1e-9


def close(a: float, b: float, scale: float = 1.0) -> bool:
    """Tells whether two sums of floats agree."""
    return abs(a - b) <= RELATIVE * max(1.0, abs(a), abs(b), scale)


@dataclass
class Life:
    """One job as the facts tell it: (placement, from, to, rate, makes progress from)."""

    submit_s: float
    stretches: list[tuple[Placement, float, float, float, float]] = field(default_factory=list)
    open: tuple[Placement, float, float, float] | None = None
    waits: list[tuple[float, float, float]] = field(default_factory=list)
    wait_since: float | None = None
    end: tuple[float, str] | None = None
    trained: Placement = field(default_factory=lambda: Placement(((0, 1),)))

    def trains(self, started: Started) -> None:
        """Notes the GPUs that train: all, or those kept while others are made ready."""
        if not started.preparing:
            self.trained = started.placement
            return
        kept = self.trained.kept_in(started.placement)
        assert kept is not None, "who keeps no GPU cannot train on"
        assert kept.gpus + started.preparing <= started.placement.gpus
        self.trained = kept

    def close_stretch(self, t: float) -> None:
        """Ends the present stretch."""
        assert self.open is not None
        placement, start_s, rate, from_s = self.open
        self.stretches.append((placement, start_s, t, rate, from_s))
        self.open = None

    def close_wait(self, t: float) -> None:
        """Ends the present wait."""
        assert self.wait_since is not None
        self.waits.append((self.wait_since, t, self.done_s()))
        self.wait_since = None

    def done_s(self) -> float:
        """Returns the progress of all closed stretches."""
        return sum(r * max(0.0, e - max(s, f)) for _, s, e, r, f in self.stretches)


def lives(facts: Sequence[Fact]) -> dict[int, Life]:
    """Returns each job's life; asserts that the facts tell a possible story."""
    told: dict[int, Life] = {}
    for fact in facts:
        if isinstance(fact, Submitted):
            assert fact.job not in told, "submitted twice"
            told[fact.job] = Life(fact.t, wait_since=fact.t)
        elif isinstance(fact, Started):
            life = told[fact.job]
            assert life.end is None, "started after its end"
            assert fact.from_s >= fact.t
            assert fact.rate > 0
            if life.open is not None:
                before = life.open[0]
                if before.gpus != fact.placement.gpus:
                    assert fact.how == "resize"
                else:
                    same = before.fractions == fact.placement.fractions
                    moved = before.moves_to(fact.placement)
                    assert fact.how == ("move" if moved else "adjust" if same else "limit")
                life.close_stretch(fact.t)
            else:
                first = not life.stretches
                assert fact.how == ("start" if first else "resume")
                life.close_wait(fact.t)
            life.open = (fact.placement, fact.t, fact.rate, fact.from_s)
            life.trains(fact)
        elif isinstance(fact, Switched):
            life = told[fact.job]
            assert life.open is not None, "only a running job switches"
            placement = life.open[0]
            assert life.trained.gpus < placement.gpus, "it had GPUs in preparation"
            life.close_stretch(fact.t)
            life.open = (placement, fact.t, fact.rate, fact.from_s)
            if not fact.preparing:
                life.trained = placement
        elif isinstance(fact, Shrunk):
            life = told[fact.job]
            assert life.open is not None, "only a running job shrinks"
            before, held = life.open[0].by_node(), fact.placement.by_node()
            assert all(before[node] == gpus for node, gpus in held.items())
            assert len(held) < len(before), "whole nodes are lost"
            life.close_stretch(fact.t)
            life.open = (fact.placement, fact.t, fact.rate, fact.from_s)
            life.trained = life.trained.kept_in(fact.placement) or fact.placement
        elif isinstance(fact, Retimed):
            life = told[fact.job]
            assert life.open is not None, "only a running job is re-timed"
            placement, _, _, from_s = life.open
            life.close_stretch(fact.t)
            life.open = (placement, fact.t, fact.rate, max(fact.t, from_s))
        elif isinstance(fact, Stopped):
            life = told[fact.job]
            life.close_stretch(fact.t)
            assert close(life.done_s(), fact.done_s), "progress is rate times time"
            life.wait_since = fact.t
        elif isinstance(fact, Ended):
            life = told[fact.job]
            assert life.end is None, "ended twice"
            if life.open is not None:
                life.close_stretch(fact.t)
            else:
                life.close_wait(fact.t)
            life.end = (fact.t, fact.how)
    return told


def check(scene: Scene, facts: Sequence[Fact], tally: Tally) -> None:
    """Asserts everything that must hold of a finished run."""
    _in_order(facts)
    told = lives(facts)
    assert sorted(told) == list(range(len(scene.trace))), "every job is submitted once"
    assert all(life.end for life in told.values()), "every job has one terminal fact"
    _within_capacity(scene, facts)
    _rates_right(scene, facts)
    _work_conserved(scene, told)
    _tally_agrees(scene, told, tally)


def _in_order(facts: Sequence[Fact]) -> None:
    times = [fact.t for fact in facts]
    assert times == sorted(times), "facts are in order of time"


def _within_capacity(scene: Scene, facts: Sequence[Fact]) -> None:
    cluster = scene.cluster
    placed: dict[int, Placement] = {}
    for i, fact in enumerate(facts):
        if isinstance(fact, Started | Shrunk):
            placed[fact.job] = fact.placement
        elif isinstance(fact, Stopped | Ended):
            placed.pop(fact.job, None)
        elif isinstance(fact, NodeChanged):
            cluster = cluster.with_nodes([(fact.node, fact.state)])
        if i + 1 == len(facts) or facts[i + 1].t > fact.t:
            _held_fits(placed, cluster.capacity)
            down = [n for n, state in cluster.states if state == DOWN]
            assert not any(n in down for p in placed.values() for n, _ in p.spans)


def _rates_right(scene: Scene, facts: Sequence[Fact]) -> None:
    """Asserts that between instants every job runs at the speed its neighbours leave it."""
    placed: dict[int, Placement] = {}
    trained: dict[int, Placement | None] = {}
    rate: dict[int, float] = {}
    since_s: dict[int, float] = {}
    done_s: dict[int, float] = defaultdict(float)
    for i, fact in enumerate(facts):
        job = getattr(fact, "job", -1)
        if fact.t > since_s.get(job, float("inf")):
            done_s[job] += rate[job] * (fact.t - since_s[job])
            since_s[job] = fact.t
        if isinstance(fact, Started):
            since_s[job] = fact.from_s
            before = trained.get(fact.job)
            kept = before.kept_in(fact.placement) if before and fact.preparing else None
            placed[fact.job], rate[fact.job] = fact.placement, fact.rate
            trained[fact.job] = kept if fact.preparing else fact.placement
        elif isinstance(fact, Switched | Shrunk):
            if isinstance(fact, Shrunk):
                placed[fact.job] = fact.placement
            # Which of its GPUs train while others are still made ready, no fact says.
            trained[fact.job] = None if fact.preparing else placed[fact.job]
            rate[fact.job], since_s[fact.job] = fact.rate, fact.from_s
        elif isinstance(fact, Retimed):
            rate[fact.job] = fact.rate
        elif isinstance(fact, Stopped | Ended):
            placed.pop(fact.job, None)
            since_s.pop(fact.job, None)
        if i + 1 < len(facts) and facts[i + 1].t > fact.t:
            for job, placement in placed.items():
                training = trained[job]
                if training is None:
                    continue
                more_s = max(0.0, fact.t - since_s[job])
                mine = set(placement.named())
                mine = mine if placement.gpu_part == 1 else set()
                near = sorted(j for j, p in placed.items() if j != job and mine & set(p.named()))
                true = scene.truth.rate(
                    job,
                    training,
                    [(j, placed[j]) for j in near],
                    done_s[job] + rate[job] * more_s,
                )
                assert rate[job] == true, f"job {job} runs at {rate[job]}, not {true}"


def _held_fits(placed: dict[int, Placement], capacity: Sequence[int]) -> None:
    held: Counter[int] = Counter()
    named = {gpu for p in placed.values() if p.gpu_ids for gpu in p.named()}
    for node, _ in named:
        held[node] += 1
    parts: Counter[tuple[int, int]] = Counter()
    for p in placed.values():
        if not p.gpu_ids and p.gpu_part:
            held.update(dict(p.spans))
        for gpu in p.named() if p.gpu_part < 1 else ():
            parts[gpu] += round(1000 * p.gpu_part)
    assert all(part <= 1000 for part in parts.values()), f"{parts} over a GPU"
    assert all(held[node] <= capacity[node] for node in held), f"{held} over {capacity}"


def _work_conserved(scene: Scene, told: dict[int, Life]) -> None:
    for job, life in told.items():
        assert life.end is not None
        t, how = life.end
        work = float(scene.trace.duration_s[job])
        assert life.submit_s >= scene.trace.jobs.submit_s[job]
        if how in ("completed", "failed"):
            done = life.done_s()
            if scene.coalesce_s:
                assert done >= work * (1 - RELATIVE)
            else:
                assert close(done, work, t), f"job {job} did {done} of {work}"
        elif how == "timeout":
            # Switching is not charged to a limit.
            ran = sum(max(0.0, e - max(s, f)) for _, s, e, _, f in life.stretches)
            limit = float(scene.trace.jobs.time_limit_s[job])
            assert close(ran, limit, t) or (scene.coalesce_s and ran > limit)


def _tally_agrees(scene: Scene, told: dict[int, Life], tally: Tally) -> None:
    for job, life in told.items():
        assert life.end is not None
        assert (tally.finish_s[job], tally.how[job]) == life.end
        service = sum(p.gpus * p.gpu_part * (e - s) for p, s, e, _, _ in life.stretches)
        assert close(tally.service_gpu_s[job], service, life.end[0])
        assert close(tally.done_s[job], life.done_s(), life.end[0])
    seconds = gpu_seconds(tally)
    first = min(life.submit_s for life in told.values())
    last = max(life.end[0] for life in told.values() if life.end)
    if not scene.capacity:
        total = sum(scene.cluster.installed) * (last - first)
        assert close(sum(seconds.values()), total, last * sum(scene.cluster.installed))
    assert all(v >= -1e-6 * max(1.0, last) for k, v in seconds.items() if k != "slowdown")
