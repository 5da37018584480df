"""The state machine of a worker in a generation: events in, instructions out."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dovetail.wire.generation import (
    Broke,
    CheckpointDone,
    Entering,
    JoinFailed,
    Leaves,
    Prepare,
    ProtocolError,
    Send,
    ShowLife,
    Stalled,
    Stop,
    Trains,
    WorkerGenerations,
    agree,
)
from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Finished,
    Lost,
    Meet,
    Ready,
    Regroup,
    WorkerLeft,
)
from generation_invariants import violations


def trains_in(generation: int, *members: int, number: int = 1) -> WorkerGenerations:
    """Returns a worker that trains in a generation of these members."""
    worker = WorkerGenerations(number)
    for event in (
        Regroup(generation, members),
        Ready(generation),
        Entering(generation),
        Trains(0, 0),
    ):
        worker.handle(event)
    return worker


def test_a_worker_prepares_joins_and_enters_the_generation_it_was_ordered_into() -> None:
    worker, order = WorkerGenerations(1), Regroup(3, (1, 2))
    assert worker.handle(order) == [Prepare(order, hosts=True)]
    assert worker.hosted == [3] and worker.wants(3) and worker.propose() == -1
    assert worker.handle(Ready(3, 0.5)) == [Send(Ready(3, 0.5))]
    assert worker.hosted == [] and worker.propose() == 3
    assert worker.handle(Entering(3)) == []
    assert worker.handle(Trains(7, 112, 0.1)) == [Send(Entered(3, 7, 112, 0.1))]
    assert worker.entered == 3 and worker.open_generations == []


def test_older_and_repeated_orders_change_nothing() -> None:
    worker = trains_in(3, 1)
    assert worker.handle(Regroup(3, (1,))) == worker.handle(Regroup(2, (1, 2))) == []
    assert worker.newest == 3


def test_only_the_first_of_several_members_hosts_the_meeting() -> None:
    second, alone = WorkerGenerations(2), WorkerGenerations(1)
    assert second.handle(Regroup(3, (1, 2))) == [Prepare(Regroup(3, (1, 2)), hosts=False)]
    assert not second.knows_meeting(3)
    second.handle(Meet(3, "there"))
    assert second.knows_meeting(3) and second.address_of(3) == "there"
    alone.handle(Regroup(3, (1,)))
    assert alone.knows_meeting(3) and not alone.hosts(3)


def test_a_generation_that_was_overtaken_while_it_was_built_is_not_joined() -> None:
    worker = trains_in(3, 1, 2)
    worker.handle(Regroup(4, (1,)))
    worker.handle(Regroup(5, (1, 3)))
    assert worker.propose() == 3 and worker.open_generations == [5]
    assert worker.handle(Ready(4)) == []


def test_the_survivors_of_a_broken_generation_enter_the_oldest_they_joined() -> None:
    worker = trains_in(3, 1, 2)
    for generation in (4, 5):
        worker.handle(Regroup(generation, (1,)))
        worker.handle(Ready(generation))
    assert worker.handle(Broke("a member is gone")) == [Send(Lost(3, "a member is gone"))]
    assert worker.open_generations == [4, 5]
    worker.handle(Entering(4))
    assert worker.open_generations == [5] and not worker.broken


def test_a_generation_that_others_left_for_a_newer_order_is_not_reported_lost() -> None:
    worker = trains_in(3, 1, 2)
    for event in (Regroup(4, (1, 2)), Ready(4), Entering(4), Regroup(5, (1,))):
        worker.handle(event)
    assert worker.handle(Broke("no answer")) == []


def test_a_generation_is_overtaken_when_it_is_abandoned_or_a_newer_one_is_ordered() -> None:
    worker = trains_in(3, 1, 2)
    assert not worker.is_overtaken(3) and worker.is_overtaken(2)
    worker.handle(Abandon(3))
    assert worker.is_overtaken(3)


def test_each_abandon_is_answered_and_stops_the_generation_it_names() -> None:
    worker = trains_in(3, 1, 2)
    answer = ShowLife(Lost(3, "abandoned"))
    assert worker.handle(Abandon(3)) == worker.handle(Abandon(3)) == [Stop(3), answer]
    assert worker.handle(Abandon(2)) == [ShowLife(Lost(2, "abandoned"))]
    worker.handle(Broke("no answer"))
    assert worker.handle(Abandon(3))[1] == ShowLife(Lost(3, "no answer"))


def test_an_abandoned_generation_is_never_proposed() -> None:
    worker = trains_in(3, 1, 2)
    for event in (Regroup(4, (1,)), Ready(4), Abandon(4)):
        worker.handle(event)
    assert worker.propose() == 3 and worker.open_generations == [] and not worker.wants(4)


def test_a_stall_is_reported_once_in_a_generation() -> None:
    worker = trains_in(3, 1, 2)
    assert worker.handle(Stalled("no answer")) == [Send(Lost(3, "no answer"))]
    assert worker.handle(Stalled("no answer")) == []


def test_a_failure_to_join_is_reported_unless_the_members_called_it_off() -> None:
    worker = WorkerGenerations(1)
    worker.handle(Regroup(1, (1, 2)))
    assert worker.handle(JoinFailed(1)) == [] and worker.open_generations == []
    worker.handle(Regroup(2, (1, 2)))
    assert worker.handle(JoinFailed(2, "refused")) == [Send(Lost(2, "refused"))]


def test_a_member_without_a_place_is_left_out_and_a_new_worker_awaits_its_turn() -> None:
    member, newcomer = trains_in(3, 1, 2), WorkerGenerations(7)
    for worker in (member, newcomer):
        worker.handle(Regroup(4, (2,)))
    assert member.is_left_out and member.propose() == 4
    assert not newcomer.is_left_out


def test_a_leaver_proposes_nothing_new_until_a_stayer_has_the_state() -> None:
    leaver = trains_in(3, 1, 2)
    leaver.handle(Regroup(4, (2, 3)))
    assert leaver.propose((1,)) == 3
    assert leaver.propose((1, 2)) == 4


def test_an_order_to_leave_outlives_a_save_and_not_a_newer_generation() -> None:
    worker = trains_in(3, 1)
    worker.handle(Checkpoint(leave=True))
    worker.handle(Checkpoint())
    worker.handle(CheckpointDone(leaves=False))
    assert worker.leave and not worker.save
    worker.handle(Regroup(4, (1,)))
    assert not worker.leave


@pytest.mark.parametrize(
    ("last", "message"),
    [(Leaves(5), WorkerLeft(4, 5)), (Finished(5, 80), Finished(5, 80))],
)
def test_a_worker_that_ends_heeds_nothing_more(
    last: Leaves | Finished, message: WorkerLeft | Finished
) -> None:
    worker = trains_in(3, 1)
    worker.handle(Regroup(4, (2,)))
    assert worker.handle(last) == [Send(message)]
    assert worker.handle(Abandon(3)) == worker.handle(Regroup(5, (1,))) == []


def test_nobody_enters_a_generation_that_it_has_not_joined() -> None:
    worker = WorkerGenerations(1)
    worker.handle(Regroup(3, (1, 2)))
    with pytest.raises(ProtocolError, match="worker 1 cannot enter generation 3"):
        worker.handle(Entering(3))


def test_workers_agree_only_on_what_all_propose() -> None:
    assert agree([4, 4, 4]) == 4 and agree([4]) == 4
    assert agree([4, 3]) is None


NUMBERS = st.integers(0, 4)


class Cluster(RuleBasedStateMachine):
    """Five workers, orders that arrive in any sequence and more than once, and broken groups."""

    def __init__(self) -> None:
        super().__init__()
        self.workers = {n: WorkerGenerations(n) for n in range(5)}
        self.orders: list[Regroup] = []
        self.groups: dict[int, set[int]] = {}
        self.entered: dict[int, tuple[int, ...]] = {}

    @rule(members=st.lists(NUMBERS, min_size=1, unique=True))
    def order(self, members: list[int]) -> None:
        self.orders.append(Regroup(len(self.orders) + 1, tuple(members)))

    @precondition(lambda self: self.orders)
    @rule(number=NUMBERS, pick=st.integers(0, 30))
    def hear(self, number: int, pick: int) -> None:
        order = self.orders[-1 - pick % len(self.orders)]
        for instruction in self.workers[number].handle(order):
            assert isinstance(instruction, Prepare) and number in order.members

    @precondition(lambda self: self.orders)
    @rule(number=NUMBERS, pick=st.integers(0, 30))
    def abandon(self, number: int, pick: int) -> None:
        generation = self.orders[-1 - pick % len(self.orders)].generation
        *_, answer = self.workers[number].handle(Abandon(generation)) or [None]
        assert isinstance(answer, ShowLife) or self.workers[number].has_left

    @rule(number=NUMBERS, oldest=st.booleans(), fails=st.booleans())
    def join(self, number: int, oldest: bool, fails: bool) -> None:
        worker = self.workers[number]
        waiting = [g for g in worker.open_generations if not worker.is_ready(g)]
        if waiting:
            generation = waiting[0 if oldest else -1]
            failed = JoinFailed(generation, "refused")
            worker.handle(failed if fails else Ready(generation))

    @precondition(lambda self: self.groups)
    @rule(pick=st.integers(0, 4))
    def step(self, pick: int) -> None:
        """Lets a group that trains come to a step boundary."""
        generation = sorted(self.groups)[pick % len(self.groups)]
        group = [self.workers[n] for n in sorted(self.groups[generation])]
        agreed = agree([w.propose() for w in group])
        if agreed is None or agreed == generation:
            return
        members = self.orders[agreed - 1].members
        joiners = [self.workers[n] for n in members if n not in self.groups[generation]]
        if all(w.is_ready(agreed) for w in joiners):
            del self.groups[generation]
            self._enter(agreed)
            for leaver in group:
                if leaver.number not in members:
                    assert leaver.is_left_out
                    leaver.handle(Leaves(0))

    @precondition(lambda self: self.orders)
    @rule(pick=st.integers(0, 30))
    def begin(self, pick: int) -> None:
        """Lets members that train nowhere begin together what all of them have joined."""
        order = self.orders[-1 - pick % len(self.orders)]
        busy = {n for group in self.groups.values() for n in group}
        members = [self.workers[n] for n in order.members]
        ready = all(order.generation in w.open_generations for w in members)
        ready = ready and all(w.is_ready(order.generation) for w in members)
        if ready and busy.isdisjoint(order.members):
            self._enter(order.generation)

    @precondition(lambda self: self.groups)
    @rule(pick=st.integers(0, 4))
    def break_group(self, pick: int) -> None:
        generation = sorted(self.groups)[pick % len(self.groups)]
        for number in sorted(self.groups.pop(generation)):
            self.workers[number].handle(Broke("a member is gone"))

    def _enter(self, generation: int) -> None:
        assert generation not in self.entered, "a generation is entered once"
        members = self.orders[generation - 1].members
        for number in members:
            self.workers[number].handle(Entering(generation))
            self.workers[number].handle(Trains(0, 0))
        self.groups[generation] = set(members)
        self.entered[generation] = members

    @invariant()
    def all_are_sound(self) -> None:
        for worker in self.workers.values():
            assert not violations(worker)
            assert worker.entered == -1 or worker.number in self.entered[worker.entered]

    def teardown(self) -> None:
        """Once all have heard of the newest generation and joined it, all agree on it."""
        staying = tuple(n for n, w in self.workers.items() if not w.has_left)
        if not staying:
            return
        newest = Regroup(len(self.orders) + 1, staying)
        for number in staying:
            self.workers[number].handle(newest)
            self.workers[number].handle(Ready(newest.generation))
        assert agree([self.workers[n].propose() for n in staying]) == newest.generation


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(
    "event", [Abandon(3), Checkpoint(), Checkpoint(leave=True), Ready(3), Stalled("no answer")]
)
def test_a_worker_cut_off_from_a_broken_generation_enters_none_without_an_order(
    event: Abandon | Checkpoint | Ready | Stalled,
) -> None:
    """Lost workers form no generation among themselves: only the controller orders one."""
    worker = trains_in(3, 1, 2)
    worker.handle(Broke("a member is gone"))
    worker.handle(event)
    assert worker.open_generations == [] and not worker.wants(worker.newest)
    with pytest.raises(ProtocolError):
        worker.handle(Entering(3))
