"""A machine that is cut off for a while and comes back: never two generations of a job at once.

The one node of a local cluster keeps its workers while nobody hears of it. A job that is wanted
anew starts only when the agent has said who is there, and the old workers are gone.
"""

import pytest
from live_stage import Stage

from dovetail.core.messages import NodeChanged
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.worker import STALL_S


def one_machine(policy: str, *, healed_s: float, killed_s: float = 0.0) -> Stage:
    """Plays a job of up to two GPUs on a machine that nobody hears of from 8 s on."""
    stage = Stage(policy, nodes=1, gpus=2)
    elastic = policy == "afs-p"
    stage.submit(1.0, duration_s=300.0, min_gpus=1, max_gpus=2 if elastic else 1)
    stage.at(8.0, lambda: stage.deaf.add(0))
    stage.at(healed_s, stage.deaf.clear)
    if killed_s:
        stage.play(killed_s)
    stage.play(900.0)
    stage.check()
    return stage


@pytest.mark.parametrize("killed_s", [0.0, 12.0, 30.0])
@pytest.mark.parametrize("healed_s", [20.0, 36.0, 60.0])
@pytest.mark.parametrize("policy", ["fifo", "afs-p"])
def test_a_new_generation_starts_when_the_old_one_is_gone(
    policy: str, healed_s: float, killed_s: float
) -> None:
    s = one_machine(policy, healed_s=healed_s, killed_s=killed_s)
    assert s.record(1).state is State.COMPLETED
    generations = {o.start.worker: o.start.generation for _, _, o in s.orders if o.start}
    old = {worker for worker, generation in generations.items() if generation == 1}
    gone = 0
    for _, _, order in s.orders:
        if order.forget is not None and order.forget.worker in old:
            gone |= 1 << order.forget.worker
        if order.start is not None and order.start.worker not in old:
            assert gone == sum(1 << worker for worker in old), "the old ones are still there"


def test_the_machine_was_really_given_up_and_the_job_began_anew() -> None:
    s = one_machine("fifo", healed_s=36.0)
    assert [f.state for f in s.facts if isinstance(f, NodeChanged)] == ["down", "up"]
    assert len(s.starts(1)) == 2


def test_who_could_not_be_asked_is_not_killed_for_his_silence() -> None:
    """One of three hangs. When the others notice, another is cut off, too shortly to be lost."""
    s = Stage("fifo", nodes=3, gpus=1)
    s.submit(1.0, gpus=3, duration_s=60.0)
    hangs_s = 6.05
    notices_s = hangs_s + STALL_S
    s.at(hangs_s, lambda: s.take(s.nodes.hang(1, 0, hangs_s)))
    s.at(notices_s - 0.02, lambda: s.deaf.add(2))
    s.at(notices_s + s.rules.hung_s - 0.6, s.deaf.clear)
    s.play(200.0)
    assert [f for f in s.facts if isinstance(f, NodeChanged)] == []
    assert {o.end.worker for _, _, o in s.orders if o.end} == {0}
    assert s.record(1).state is State.COMPLETED
    s.check()


class Stalled(Stage):
    """A cluster whose machine stands still once, for `lasts_s`, while the controller writes."""

    lasts_s = 0.0

    def write(self, entry: JournalEntry) -> None:
        super().write(entry)
        if self.line.now >= 20.0 and self.lasts_s:
            until_s, self.lasts_s = self.line.now + self.lasts_s, 0.0
            self.deaf.update({0, 1})
            self.line.pass_until(until_s)
            self.deaf.clear()


@pytest.mark.parametrize("lasts_s", [9.0, 15.0, 120.0])
def test_a_machine_that_stood_still_has_lost_no_node(lasts_s: float) -> None:
    """Neither could the agents speak nor the controller listen: that is no silence of theirs."""
    stage = Stalled("fifo")
    stage.lasts_s = lasts_s
    stage.submit(1.0, duration_s=900.0)
    stage.submit(20.5, duration_s=5.0)
    stage.play(2000.0)
    stage.check()
    assert stage.states() == {1: State.COMPLETED, 2: State.COMPLETED}
    assert not any(isinstance(fact, NodeChanged) for fact in stage.facts)
    assert len(stage.starts(1)) == 1
    assert not stage.lasts_s, "it did stand still"


def test_who_is_silent_after_that_is_lost_all_the_same() -> None:
    stage = Stalled("fifo")
    stage.lasts_s = 15.0
    stage.submit(20.5, duration_s=100.0)
    stage.at(36.0, lambda: stage.deaf.add(1))
    stage.play(60.0)
    lost = [(round(f.t), f.node, f.state) for f in stage.facts if isinstance(f, NodeChanged)]
    assert lost == [(46, 1, "down")]


class Slow(Stage):
    """A cluster whose disk takes `takes_s` for each write."""

    takes_s = 0.0

    def write(self, entry: JournalEntry) -> None:
        super().write(entry)
        if self.line.now >= 20.0:
            self.line.pass_until(self.line.now + self.takes_s)


def test_a_slow_controller_does_not_wait_for_ever_for_a_node_that_is_gone() -> None:
    stage = Slow("fifo", nodes=2)
    stage.takes_s = 4.5
    for i in range(40):
        stage.submit(20.0 + 2.0 * i, duration_s=1000.0)
    stage.at(30.0, lambda: stage.deaf.add(1))
    stage.play(100.0)
    (lost,) = [f for f in stage.facts if isinstance(f, NodeChanged)]
    assert (lost.node, lost.state) == (1, "down")
    assert lost.t <= 30.0 + stage.rules.node_patience_s + 3 * stage.takes_s
