"""The gang machine by itself: reports in, orders out, compared with literals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dovetail.core.units import NEVER_S
from dovetail.live.jobs.record import GangMember
from dovetail.live.node.launcher import LEFT
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang import make_gang
from dovetail.live.workers.gang_events import (
    GangEvent,
    GangFormed,
    GangStalled,
    GangVacated,
    NodeOrder,
)
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.live.workers.inventory_check import check_inventory
from dovetail.live.workers.roster import END, SAVE, UNREPORTED, WAIT
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import (
    EndWorker,
    Forget,
    NotifyWorkers,
    StartWorker,
    WorkerEnded,
    WorkerReport,
    WorkerState,
)
from dovetail.wire.worker import (
    Checkpoint,
    Entered,
    Finished,
    Lost,
    Meeting,
    Ready,
    Regroup,
    Training,
    WorkerLeft,
)

RULES = Rules(
    resend_s=2.0,
    yield_s=2.0,
    hung_s=10.0,
    lost_s=1.0,
    ready_s=60.0,
    start_s=1000.0,
    stall_s=100.0,
)
JOB = 7


class Table:
    """A gang, the GPUs that others hold, and short words for what is said and seen."""

    def __init__(
        self,
        *,
        trains: bool,
        fixed: bool = False,
        hands_over: bool = False,
        first: FirstWorker | None = None,
    ) -> None:
        command = ("python", "x.py")
        launch = StartWorker(JOB, -1, -1, -1, command, "/f", "/o", "/w", trains=trains, grace_s=5.0)
        self.gang = make_gang(launch, RULES, fixed=fixed, hands_over=hands_over, first=first)
        self.held: set[tuple[int, int]] = set()
        self.full: set[tuple[int, int]] = set()
        self.back_s: dict[int, float] = {}
        self.news: list[GangEvent] = []

    def want(self, *members: tuple[int, int, int], now: float = 0.0, **rest: object) -> None:
        desired = Desired(tuple(GangMember(*m) for m in members), **rest)  # type: ignore[arg-type]
        self.gang.want(desired, now)

    def orders(self, now: float) -> list[NodeOrder]:
        """Lets the gang decide; returns what it says, starts of workers shortened."""
        self.gang.step(
            now,
            lambda node, gpu: (node, gpu) not in self.held,
            lambda node: self.back_s.get(node, 0.0),
            lambda node, gpu, bound: (node, gpu) not in self.full,
        )
        self.news.extend(self.gang.roster.take_events())
        return due_orders(self.gang, now)

    def names(self, now: float) -> list[str]:
        """Returns what is said in short words."""
        return [short(node, order) for node, order in self.orders(now)]

    def start(self, *numbers: int, now: float = 0.0, generation: int = 1) -> None:
        for number in numbers:
            assert self.gang.roster.started(number, generation, now)

    def say(self, worker: int, now: float, **words: object) -> None:
        self.gang.receive(WorkerReport(JOB, worker, **words), now)  # type: ignore[arg-type]

    def enter(self, generation: int, *numbers: int, now: float = 0.0) -> None:
        for number in numbers:
            self.say(number, now, ready=Ready(generation))
        for number in numbers:
            self.say(number, now, entered=Entered(generation, 0, 0))

    def end(self, worker: int, code: int, now: float, node: int = 0, why: str = "") -> None:
        self.gang.ended(node, WorkerEnded(JOB, worker, 0, code, why), now)

    def heard(self) -> list[GangEvent]:
        self.news.extend(self.gang.roster.take_events())
        news, self.news = self.news, []
        return news

    def check(self) -> None:
        """Checks what must hold of any gang at any time."""
        gang = self.gang
        seats = [(w.node, w.gpu) for w in gang.roster.workers.values()]
        assert len(seats) == len(set(seats)), "two workers of one gang on one GPU"
        assert not gang.roster.workers.keys() & gang.roster.gone
        if gang.roster.target is not None:
            assert gang.roster.target.generation == gang.roster.generation
            assert gang.roster.target.members == gang.roster.group


def short(node: int, order: object) -> str:
    match order:
        case StartWorker():
            return f"start {order.worker}@{node}.{order.gpu} g{order.generation}"
        case EndWorker():
            return f"end {order.worker} in {order.grace_s:g}"
        case Forget():
            return f"forget {order.worker}"
        case NotifyWorkers():
            to = ",".join(map(str, order.workers))
            if order.regroup is not None:
                members = ",".join(map(str, order.regroup.members))
                return f"{to}: g{order.regroup.generation} is {members}"
            if order.meet is not None:
                return f"{to}: meet g{order.meet.generation} at {order.meet.address}"
            if order.abandon is not None:
                return f"{to}: abandon g{order.abandon.generation}"
            return f"{to}: checkpoint, leave" if order.checkpoint == Checkpoint(True) else "?"
    raise AssertionError(order)


@pytest.fixture
def plain() -> Iterator[Table]:
    table = Table(trains=False)
    yield table
    table.check()


@pytest.fixture
def elastic() -> Iterator[Table]:
    table = Table(trains=True)
    yield table
    table.check()


def running(table: Table, *members: tuple[int, int, int]) -> Table:
    """Brings a gang to where all its members train in generation 1."""
    table.want(*members)
    table.orders(0.0)
    numbers = [m[0] for m in members]
    table.start(*numbers)
    table.enter(1, *numbers)
    assert GangFormed(1) in table.heard()
    table.orders(0.0)
    return table


# Plain gangs.


def test_a_plain_gang_starts_at_once_with_torchruns_words(plain: Table) -> None:
    plain.want((0, 0, 1), (1, 0, 0), (2, 1, 3))
    starts = [order for _, order in plain.orders(0.0) if isinstance(order, StartWorker)]
    assert [
        (s.rank, s.world_size, s.local_rank, s.local_world_size, s.local_gpus) for s in starts
    ] == [  # type: ignore[union-attr]
        (0, 3, 0, 2, (1, 0)),
        (1, 3, 1, 2, (1, 0)),
        (2, 3, 0, 1, (3,)),
    ]
    assert len({s.master for s in starts}) == 1
    assert plain.names(1.0) == []
    plain.start(0, 1)
    plain.orders(1.0)
    assert plain.heard() == []
    plain.start(2)
    plain.orders(1.0)
    assert plain.heard() == [GangFormed(1)]


def test_one_process_may_have_several_gpus(plain: Table) -> None:
    plain.want((0, 0, 1), (0, 0, 0), (0, 1, 3))
    (start,) = [order for _, order in plain.orders(0.0) if isinstance(order, StartWorker)]
    assert (start.worker, start.gpu, start.world_size, start.local_world_size) == (0, 1, 1, 1)
    # Those of another node are out of its reach.
    assert start.gpus == start.local_gpus == (1, 0)
    plain.start(0)
    plain.orders(0.0)
    assert plain.heard() == [GangFormed(1)]
    plain.end(0, 0, 1.0)
    assert plain.heard() == [UNREPORTED]


def test_tasks_with_several_gpus_see_their_own(plain: Table) -> None:
    plain.want((4, 0, 0), (4, 0, 1), (5, 1, 0), (5, 1, 1))
    starts = [order for _, order in plain.orders(0.0) if isinstance(order, StartWorker)]
    assert [(s.worker, s.rank, s.local_rank, s.local_gpus) for s in starts] == [
        (4, 0, 0, (0, 1)),
        (5, 1, 0, (0, 1)),
    ]
    assert [(s.group_rank, s.group_world_size) for s in starts] == [(0, 2), (1, 2)]


def test_a_process_with_several_gpus_waits_for_all_of_them(plain: Table) -> None:
    plain.held = {(0, 1)}
    plain.want((0, 0, 0), (0, 0, 1))
    assert plain.names(0.0) == []
    plain.held = set()
    assert plain.names(1.0) == ["start 0@0.0 g1"]


def test_a_gang_starts_whole_or_not_at_all(plain: Table) -> None:
    plain.held = {(1, 3)}
    plain.want((0, 0, 0), (1, 1, 3))
    assert plain.names(0.0) == []
    plain.held = set()
    assert plain.names(1.0) == ["start 0@0.0 g1", "start 1@1.3 g1"]


def test_an_order_that_has_no_effect_is_said_again(plain: Table) -> None:
    plain.want((0, 0, 0))
    assert plain.names(0.0) == ["start 0@0.0 g1"]
    assert next_resend_s(plain.gang, 0.0) == 2.0
    assert plain.names(1.9) == []
    assert plain.names(2.0) == ["start 0@0.0 g1"]
    plain.start(0)
    assert plain.names(4.0) == []


def test_a_plain_gang_is_done_when_all_its_processes_are(plain: Table) -> None:
    plain.want((0, 0, 0), (1, 0, 1))
    plain.orders(0.0)
    plain.start(0, 1)
    plain.orders(0.0)
    plain.heard()
    plain.end(0, 0, 3.0)
    # Its agent must keep this end: nothing on record tells of it yet.
    assert plain.names(3.0) == [] and plain.heard() == []
    plain.end(1, 0, 4.0)
    assert plain.names(4.0) == ["forget 1"]
    assert plain.heard() == [UNREPORTED]


def test_a_process_that_fails_is_news_once(plain: Table) -> None:
    plain.want((0, 0, 0), (1, 0, 1))
    plain.orders(0.0)
    plain.start(0, 1)
    plain.end(0, 3, 1.0)
    plain.end(0, 3, 1.0)
    assert [n for n in plain.heard() if isinstance(n, WorkerEnded)] == [WorkerEnded(JOB, 0, 0, 3)]
    plain.gang.roster.vacate(1.0, 5.0, END)
    assert plain.names(1.0) == ["forget 0", "forget 0", "end 1 in 5"]
    plain.end(1, -15, 2.0)
    assert plain.names(2.0) == ["forget 1"]
    assert plain.heard() == [GangVacated()]


def test_an_overdue_worker_is_killed(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.gang.roster.vacate(10.0, 5.0, END)
    assert plain.names(10.0) == ["end 0 in 5"]
    assert plain.names(12.0) == ["end 0 in 5"]
    assert plain.names(17.0) == ["end 0 in 0"]


def test_a_plain_gang_that_moves_ends_before_it_starts_anew(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.orders(0.0)
    plain.want((1, 0, 1), now=1.0)
    assert plain.names(1.0) == ["end 0 in 5"]
    plain.end(0, -15, 2.0)
    assert plain.names(2.0) == ["forget 0", "start 1@0.1 g2"]


def test_a_plain_gang_that_was_done_when_it_was_stopped_is_done(plain: Table) -> None:
    plain.want((0, 0, 0), (1, 0, 1))
    plain.orders(0.0)
    plain.start(0, 1)
    plain.orders(0.0)
    plain.heard()
    plain.gang.roster.vacate(5.0, 5.0, END)
    plain.orders(5.0)
    plain.end(0, 0, 5.1)
    assert plain.heard() == []
    plain.end(1, 0, 5.1)
    assert plain.heard() == [UNREPORTED]
    plain.orders(5.1)
    assert plain.heard() == [GangVacated()]


def test_a_plain_gang_that_ends_well_because_it_was_asked_to_is_not_done(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.gang.roster.vacate(5.0, 5.0, END)
    plain.orders(5.0)
    plain.heard()
    plain.gang.ended(0, WorkerEnded(JOB, 0, 0, 0, asked=True), 5.1)
    plain.orders(5.1)
    assert plain.heard() == [GangVacated()]


def test_a_gang_never_started_is_fenced_before_its_gpu_is_given_away(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.gang.roster.vacate(0.5, 5.0, END)
    assert plain.names(0.5) == ["end 0 in 5"]
    assert set(plain.gang.roster.workers) == {0}
    plain.end(0, -9, 1.0, why="never started")
    plain.orders(1.0)
    assert not plain.gang.roster.workers


# Elastic gangs.


def test_an_elastic_gang_starts_and_meets(elastic: Table) -> None:
    elastic.want((0, 0, 0), (1, 1, 0))
    assert elastic.names(0.0) == [
        "start 0@0.0 g1",
        "start 1@1.0 g1",
        "0: g1 is 0,1",
        "1: g1 is 0,1",
    ]
    elastic.start(0, 1)
    elastic.say(0, 0.5, meeting=Meeting(1, "host:1"))
    assert elastic.names(0.5) == ["1: meet g1 at host:1"]
    elastic.enter(1, 0, 1, now=1.0)
    assert elastic.heard() == [GangFormed(1)]
    assert elastic.names(9.0) == []


def test_growing_lets_the_old_ones_train_on(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), (1, 0, 1), now=1.0)
    assert elastic.names(1.0) == ["start 1@0.1 g2", "0,1: g2 is 0,1"]
    elastic.start(1)
    elastic.enter(2, 1, 0, now=5.0)
    assert elastic.heard() == [GangFormed(2)]


def test_shrinking_tells_the_leaver_too_and_waits_for_its_end(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.want((0, 0, 0), now=1.0)
    assert elastic.names(1.0) == ["0,1: g2 is 0"]
    elastic.enter(2, 0, now=1.1)
    elastic.say(1, 1.1, left=WorkerLeft(2, 10))
    assert set(elastic.gang.roster.workers) == {0, 1}
    elastic.end(1, 0, 1.2)
    assert elastic.names(1.2) == ["forget 1"]
    assert elastic.heard() == [GangFormed(2)]
    assert set(elastic.gang.roster.workers) == {0}


def test_who_moves_in_part_goes_on_without_the_leavers_first(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.want((0, 0, 0), (2, 1, 0), now=1.0)
    assert elastic.names(1.0) == ["start 2@1.0 g2", "0,1: g2 is 0"]
    elastic.start(2)
    elastic.enter(2, 0, now=1.1)
    assert elastic.names(1.1) == ["0,1: g3 is 0,2", "2: g3 is 0,2"]


def test_a_leaver_that_hangs_does_not_make_the_others_begin_again_and_again(
    elastic: Table,
) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.want((0, 0, 0), (2, 1, 0), now=10)
    assert "0,1: g2 is 0" in elastic.names(10)
    elastic.start(2, now=10)
    # 1 hears nothing of it, and stays in generation 1.
    elastic.enter(2, 0, now=11)
    assert "0,1: g3 is 0,2" in elastic.names(11)
    assert elastic.names(11.001) == [] and elastic.gang.roster.generation == 3
    elastic.say(2, 12, ready=Ready(3))
    elastic.enter(3, 0, 2, now=12)
    assert elastic.names(12) == [] and elastic.gang.roster.generation == 3
    assert "end 1 in 5" in elastic.names(17)


def test_one_who_has_the_state_stays_among_newcomers_until_they_have_it(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((1, 1, 0), now=1.0)
    assert elastic.names(1.0) == ["start 1@1.0 g2", "0: g2 is 0,1", "1: g2 is 0,1"]
    elastic.start(1)
    elastic.enter(2, 0, 1, now=4.0)
    assert elastic.names(4.0) == ["0: g3 is 1", "1: g3 is 1"]
    elastic.enter(3, 1, now=4.1)
    elastic.end(0, 0, 4.2)
    elastic.orders(4.2)
    assert set(elastic.gang.roster.workers) == {1}


def test_a_clock_is_handed_over_to_newcomers_alone() -> None:
    table = running(Table(trains=True, fixed=True, hands_over=True), (0, 0, 0))
    table.want((1, 1, 0), now=1.0)
    assert table.names(1.0) == ["start 1@1.0 g2", "0: g2 is 1", "1: g2 is 1"]
    table.check()


def test_a_newer_order_overtakes_an_older_one(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), (1, 0, 1), now=1.0)
    elastic.orders(1.0)
    elastic.start(1)
    elastic.want((0, 0, 0), now=2.0)
    assert elastic.names(2.0) == ["end 1 in 5", "0: g3 is 0"]
    elastic.enter(3, 0, now=2.1)
    elastic.end(1, -15, 2.2)
    elastic.orders(2.2)
    assert elastic.heard() == [GangFormed(3)]


def test_a_change_of_manner_is_a_new_generation_of_the_same(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), now=1.0, steps=4, batch_size=64)
    told = [order.regroup for _, order in elastic.orders(1.0)]  # type: ignore[union-attr]
    assert told == [Regroup(2, (0,), 4, (), 64)]


def test_other_shares_are_told_under_a_newer_generation(elastic: Table, plain: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), now=1.0, shares=(0.5,))
    assert elastic.names(1.0) == ["start 0@0.0 g2", "0: g2 is 0"]
    elastic.enter(2, 0, now=1.1)
    assert next_resend_s(elastic.gang, 1.1) == 3.0
    assert elastic.names(3.0) == ["start 0@0.0 g2"], "nobody has said that they are in force"
    elastic.start(0, now=3.1, generation=2)
    assert elastic.names(9.0) == []
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.orders(0.0)
    plain.heard()
    plain.want((0, 0, 0), now=1.0, shares=(0.5,))
    [(_, order)] = plain.orders(1.0)
    assert isinstance(order, StartWorker) and (order.generation, order.share) == (2, 0.5)
    plain.start(0, now=1.1, generation=2)
    assert plain.names(9.0) == [] and plain.heard() == []


def test_a_bound_is_tightened_at_once_and_told_to_those_who_train(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    worker = elastic.gang.roster.workers[0]
    elastic.want((0, 0, 0), now=1.0, memory_bytes=40)
    (_, start), (_, tell) = elastic.orders(1.0)
    assert isinstance(start, StartWorker) and (start.generation, start.memory_bytes) == (2, 40)
    assert isinstance(tell, NotifyWorkers) and tell.regroup == Regroup(2, (0,), memory_bytes=40)
    assert worker.memory_held_max == 0, "until it says so it may hold all of its GPU"
    elastic.start(0, now=1.1, generation=1)
    elastic.enter(2, 0, now=1.2)
    assert worker.memory_held_max == 0, "its agent has not yet seen to it"
    elastic.start(0, now=1.3, generation=2)
    assert worker.memory_held_max == 40 and elastic.names(9.0) == []


def test_a_sub_batch_and_the_bound_that_it_fits_come_with_one_generation(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), now=1.0, steps=2, memory_bytes=40)
    told = [o.regroup for _, o in elastic.orders(1.0) if isinstance(o, NotifyWorkers)]
    assert told == [Regroup(2, (0,), 2, memory_bytes=40)]


def test_a_new_controller_knows_what_those_it_finds_may_hold(elastic: Table) -> None:
    elastic.gang.roster.generation = 4
    wanted = Desired((GangMember(0, 0, 0), GangMember(1, 0, 1)), memory_bytes=40)
    elastic.gang.restore(wanted, (0, 1), ran=True)
    rows = [WorkerState(JOB, n, 4, n, entered=4, memory_bytes=b) for n, b in ((0, 40), (1, 0))]
    check_inventory(elastic.gang, 0, rows, 0.0)
    elastic.gang.find_missing(0.0)
    assert [elastic.gang.roster.workers[n].memory_held_max for n in (0, 1)] == [40, 0]
    told = elastic.orders(0.0)
    starts = [(o.worker, o.memory_bytes) for _, o in told if isinstance(o, StartWorker)]
    assert starts == [(1, 40)] and elastic.gang.roster.generation == 5
    assert elastic.gang.roster.workers[1].memory_held_max == 0
    check_inventory(
        elastic.gang, 0, [replace(row, generation=5, memory_bytes=40) for row in rows], 1.0
    )
    assert elastic.gang.roster.workers[1].memory_held_max == 40, "an inventory says it too"


def test_a_bound_is_loosened_when_there_is_room_and_counts_from_then_on(elastic: Table) -> None:
    elastic.want((0, 0, 0), memory_bytes=40)
    elastic.orders(0.0)
    elastic.start(0)
    elastic.enter(1, 0)
    worker, elastic.full = elastic.gang.roster.workers[0], {(0, 0)}
    elastic.want((0, 0, 0), now=1.0)
    assert elastic.names(1.0) == [] and elastic.gang.roster.awaits_memory, (
        "another may hold the rest"
    )
    elastic.full = set()
    assert elastic.names(2.0) == ["start 0@0.0 g2", "0: g2 is 0"]
    assert worker.memory_held_max == 0 and not elastic.gang.roster.awaits_memory


def test_who_waits_for_a_gpu_takes_a_tighter_bound_meanwhile() -> None:
    for fixed in (False, True):
        table = running(Table(trains=True, fixed=fixed), (0, 0, 0), (1, 0, 1))
        table.held = {(0, 2)}
        table.want((0, 0, 0), (2, 0, 2), now=1.0, memory_bytes=40)
        told = [order.regroup for _, order in table.orders(1.0) if isinstance(order, NotifyWorkers)]
        assert told and all(r is not None and r.memory_bytes == 40 for r in told)
        assert [o for o in table.orders(1.1) if isinstance(o[1], NotifyWorkers)] == [], "once"


def test_the_bound_of_a_plain_gang_waits_until_all_of_it_runs(plain: Table) -> None:
    plain.want((0, 0, 0), (1, 1, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.want((0, 0, 0), (1, 1, 0), now=1.0, memory_bytes=40)
    assert plain.names(1.0) == [], "ranks meet where those were told that are started already"
    plain.start(1, now=1.5)
    assert plain.orders(1.5) == []
    told = [o for _, o in plain.orders(1.6) if isinstance(o, StartWorker)]
    assert [(o.generation, o.memory_bytes) for o in told] == [(2, 40), (2, 40)]
    plain.start(0, 1, now=1.7, generation=2)
    assert plain.names(9.0) == []


def test_a_joiner_waits_for_a_gpu_that_others_hold(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.held = {(0, 1)}
    elastic.want((0, 0, 0), (1, 0, 1), now=1.0)
    assert elastic.names(1.0) == []
    elastic.held = set()
    assert elastic.names(1.5) == ["start 1@0.1 g2", "0,1: g2 is 0,1"]


def test_a_gang_that_gives_way_leaves_and_starts_anew_elsewhere(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.held = {(0, 1)}
    elastic.want((1, 0, 1), now=1.0)
    assert elastic.names(1.0) == [] and elastic.gang.roster.is_stuck
    assert elastic.names(9.0) == [], "whoever has the GPU may still be on its way"
    elastic.gang.roster.give_way(9.0)
    assert elastic.names(9.0) == ["0: checkpoint, leave"] and not elastic.gang.roster.is_stuck
    elastic.end(0, 0, 9.5)
    elastic.held = set()
    assert elastic.names(9.5) == ["forget 0", "start 1@0.1 g2", "1: g2 is 1"]


def test_a_preempted_gang_saves_and_leaves_and_is_ended_in_time(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.gang.roster.vacate(1.0, 5.0, SAVE)
    assert elastic.names(1.0) == ["0,1: checkpoint, leave"]
    elastic.end(0, 0, 2.0)
    assert elastic.names(6.0) == ["forget 0", "end 1 in 5"]
    elastic.end(1, -15, 7.0)
    elastic.orders(7.0)
    assert elastic.heard() == [GangVacated()]


def test_a_gang_wanted_again_while_it_leaves_waits_for_the_last_one(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.gang.roster.vacate(1.0, 5.0, SAVE)
    elastic.orders(1.0)
    elastic.want((1, 0, 0), now=1.5)
    assert elastic.names(1.5) == []
    elastic.end(0, 0, 2.0)
    assert elastic.names(2.0) == ["forget 0", "start 1@0.0 g2", "1: g2 is 1"]


# What befalls them.


def test_survivors_go_on_first_and_then_the_lost_one_is_grown_back(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1), (2, 0, 2))
    elastic.end(1, -9, 5.0)
    assert elastic.heard() == [WorkerEnded(JOB, 1, 0, -9)]
    elastic.want((0, 0, 0), (2, 0, 2), now=5.0)
    assert elastic.names(5.0) == ["forget 1", "0,2: abandon g1", "0,2: g2 is 0,2"]
    elastic.enter(2, 0, 2, now=5.1)
    elastic.want((0, 0, 0), (3, 0, 1), (2, 0, 2), now=6.0)
    assert elastic.names(6.0) == ["start 3@0.1 g3", "0,2,3: g3 is 0,3,2"]


def test_who_waits_for_a_broken_generation_is_not_told_of_the_one_without_it(
    elastic: Table,
) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.want((0, 0, 0), (1, 0, 1), (2, 0, 2), now=1.0)
    elastic.orders(1.0)
    elastic.start(2)
    elastic.end(1, -9, 2.0)
    elastic.want((0, 0, 0), (2, 0, 2), now=2.0)
    assert elastic.names(2.0) == ["forget 1", "0,2: abandon g2", "0: g3 is 0"]
    assert elastic.gang.roster.target is not None and elastic.gang.roster.target.members == (0,)
    assert elastic.gang.roster.workers[2].regroup_sent == 2
    elastic.enter(3, 0, now=2.1)
    elastic.orders(2.1)
    assert elastic.gang.roster.target.members == (0, 2)


def test_a_worker_that_hangs_is_found_by_its_silence(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1), (2, 0, 2))
    elastic.say(0, 10.0, lost=Lost(1, "stalled"))
    elastic.orders(10.0)
    assert elastic.names(11.0) == ["0,1,2: abandon g1"]
    elastic.say(2, 11.1, lost=Lost(1, "abandoned"))
    assert "end 1 in 0" not in elastic.names(15.0)
    assert "end 1 in 0" in elastic.names(20.0)


def test_nobody_is_silent_while_nobody_could_ask_him(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 1, 0))
    elastic.say(0, 10.0, lost=Lost(1, "stalled"))
    elastic.orders(11.0)
    elastic.back_s[1] = 19.5
    assert "end 1 in 0" not in elastic.names(20.0)
    assert elastic.gang.next_s(20.0) == 29.5
    assert "end 1 in 0" not in elastic.names(29.4)
    assert "end 1 in 0" in elastic.names(29.5)


def test_nobody_is_silent_before_a_new_controller_found_him(elastic: Table) -> None:
    elastic.gang.roster.generation = 1
    elastic.gang.restore(Desired((GangMember(0, 0, 0), GangMember(1, 1, 0))), (0, 1), ran=True)
    lost = WorkerState(JOB, 0, 1, 0, entered=1, lost=Lost(1, "stalled"))
    check_inventory(elastic.gang, 0, [lost], 100.0)
    check_inventory(elastic.gang, 1, [row(1, 0, 1)], 110.0)
    elastic.gang.find_missing(110.0)
    assert elastic.names(110.0) == ["0: abandon g1", "1: abandon g1"]
    elastic.say(1, 110.1, lost=Lost(1, "abandoned"))
    assert elastic.names(110.1) == ["0: g2 is 0,1", "1: g2 is 0,1"]


def test_if_all_answer_the_same_ones_try_again(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.say(0, 10.0, lost=Lost(1, "reset"))
    elastic.say(1, 10.5, lost=Lost(1, "reset"))
    assert elastic.names(10.5) == ["0,1: abandon g1", "0,1: g2 is 0,1"]


def test_a_target_never_entered_is_asked_for_a_sign_of_life(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), (1, 0, 1), now=1.0)
    elastic.orders(1.0)
    elastic.start(1, now=1.0)
    elastic.say(1, 1.0, meeting=Meeting(2, "here"))
    elastic.orders(61.0)
    assert "0,1: abandon g2" in elastic.names(62.0)
    elastic.say(0, 62.1, lost=Lost(2, "abandoned"))
    said = elastic.names(71.0)
    assert "end 1 in 0" in said and not any(s.startswith("end 0") for s in said)


def test_programs_may_load_for_long_before_their_first_word(elastic: Table) -> None:
    elastic.want((0, 0, 0), (1, 0, 1))
    elastic.orders(0.0)
    elastic.start(0, 1)
    for now in (99.0, 350.0, 699.0):
        assert all("g1 is" in said for said in elastic.names(now))
    elastic.say(0, 700.0, meeting=Meeting(1, "here"), ready=Ready(1))
    elastic.orders(990.0)
    elastic.say(1, 999.0, ready=Ready(1))
    # The last to come has its time to prepare from then on.
    elastic.orders(1058.0)
    assert elastic.heard() == [] and elastic.gang.next_s(1058.0) <= 1059.0
    elastic.enter(1, 0, 1, now=1058.5)
    assert isinstance(elastic.heard()[0], GangFormed)


def test_a_program_that_never_says_a_word_is_ended(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.want((0, 0, 0), (1, 0, 1), now=1.0)
    elastic.orders(1.0)
    elastic.start(1, now=2.0)
    for now in range(50, 1050, 50):
        elastic.say(0, float(now), training=Training(1, now, now, 1.0, 1.0))
        assert not any("end" in said or "abandon" in said for said in elastic.names(float(now)))
    due_s = elastic.gang.next_s(1001.0)
    assert due_s == 1002.0
    elastic.orders(due_s)
    assert "0,1: abandon g2" in elastic.names(1003.0)
    elastic.say(0, 1003.1, lost=Lost(2, "abandoned"))
    assert "end 1 in 0" in elastic.names(1012.0)


def test_who_loads_is_not_blamed_for_what_others_lost(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.want((0, 0, 0), (1, 0, 1), (2, 0, 2), now=1.0)
    elastic.orders(1.0)
    elastic.start(2, now=1.0)
    for worker in (0, 1):
        elastic.say(worker, 10.0, lost=Lost(2, "reset"))
    assert "0,1,2: g3 is 0,1,2" in elastic.names(11.0)
    assert not any(said.startswith("end") for said in elastic.names(30.0))


def test_a_job_that_says_nothing_for_long_has_stalled(elastic: Table) -> None:
    running(elastic, (0, 0, 0))
    elastic.say(0, 50.0, training=Training(1, 1, 1, 1.0, 1.0))
    assert isinstance(elastic.heard()[0], Training)
    elastic.orders(149.0)
    assert elastic.heard() == []
    elastic.orders(150.0)
    assert elastic.heard() == [GangStalled(100.0)]


def test_one_exit_with_zero_finishes_an_elastic_job(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 0, 1))
    elastic.say(0, 9.0, finished=Finished(10, 100))
    elastic.say(1, 9.0, finished=Finished(10, 100))
    assert elastic.heard() == [Finished(10, 100)]
    elastic.gang.roster.vacate(9.0, 5.0, WAIT)
    elastic.end(0, 0, 9.1)
    elastic.end(1, 0, 9.2)
    elastic.orders(9.2)
    assert elastic.heard() == [GangVacated()]


# What inventories tell.


def row(worker: int, gpu: int, entered: int = -1, code: int | None = None) -> WorkerState:
    return WorkerState(JOB, worker, 0, gpu, entered=entered, exit_code=code)


def test_what_reports_lost_an_inventory_says_again(elastic: Table) -> None:
    elastic.want((0, 0, 0), (1, 0, 1))
    elastic.orders(0.0)
    check_inventory(elastic.gang, 0, [row(0, 0, 1), row(1, 1, 1)], 1.0)
    assert elastic.heard() == [GangFormed(1)]
    check_inventory(elastic.gang, 0, [row(0, 0, 1), row(1, 1, 1, code=-9)], 2.0)
    assert elastic.heard() == [WorkerEnded(JOB, 1, 0, -9)]


def test_one_inventory_without_a_worker_may_be_an_old_one(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    check_inventory(plain.gang, 0, [], 5.0)
    assert plain.names(5.0) == []
    check_inventory(plain.gang, 0, [row(0, 0)], 6.0)
    check_inventory(plain.gang, 0, [], 10.0)
    assert plain.names(10.0) == []
    check_inventory(plain.gang, 0, [], 15.0)
    assert plain.names(15.0) == ["end 0 in 0"]


def test_an_old_inventory_that_comes_twice_is_still_an_old_one(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    check_inventory(plain.gang, 0, [], 1.0)
    check_inventory(plain.gang, 0, [], 1.5)
    assert plain.names(1.5) == []
    check_inventory(plain.gang, 0, [], 3.0)
    assert plain.names(3.0) == ["end 0 in 0"]


def test_a_worker_whose_order_was_lost_is_not_missed(plain: Table) -> None:
    plain.want((0, 0, 0))
    assert plain.names(0.0) == ["start 0@0.0 g1"]
    for now in (1.0, 6.0, 11.0):
        check_inventory(plain.gang, 0, [], now)
        assert plain.names(now) == ([] if now < 2.0 else ["start 0@0.0 g1"])


def test_a_worker_that_ended_does_not_come_back_with_an_old_inventory(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.end(0, 3, 1.0)
    check_inventory(plain.gang, 0, [row(0, 0)], 2.0)
    assert not plain.gang.roster.workers


def test_a_new_controller_adopts_who_trains(elastic: Table) -> None:
    elastic.gang.roster.generation = 4
    wanted = Desired((GangMember(2, 0, 0), GangMember(5, 0, 1)))
    elastic.gang.restore(wanted, (2, 5), ran=True)
    check_inventory(elastic.gang, 0, [row(2, 0, 4), row(5, 1, 4)], 1.0)
    assert elastic.gang.find_missing(1.0) == ()
    assert elastic.names(1.0) == []
    assert elastic.heard() == []


def test_a_new_controller_finds_who_is_gone(elastic: Table) -> None:
    elastic.gang.roster.generation = 4
    elastic.gang.restore(Desired((GangMember(2, 0, 0), GangMember(5, 0, 1))), (2, 5), ran=True)
    check_inventory(elastic.gang, 0, [row(2, 0, 4)], 1.0)
    assert elastic.gang.find_missing(1.0) == (5,)
    elastic.want((2, 0, 0), (6, 0, 1), now=1.0)
    assert elastic.names(1.0) == ["start 6@0.1 g5", "2: abandon g4", "2: g5 is 2"]


def test_no_end_is_forgotten_before_every_node_has_spoken(plain: Table) -> None:
    """The controller may be killed again until then, and no record tells of the end yet."""
    desired = Desired((GangMember(0, 0, 0), GangMember(1, 1, 0)))
    plain.gang.restore(desired, (0, 1), ran=True)
    check_inventory(plain.gang, 0, [WorkerState(JOB, 0, 1, 0, exit_code=1)], 1.0)
    assert due_orders(plain.gang, 1.0, settled=False) == []
    check_inventory(plain.gang, 1, [WorkerState(JOB, 1, 1, 0)], 2.0)
    assert plain.gang.find_missing(2.0) == ()
    assert "forget 0" in plain.names(2.0)


def test_a_new_controller_lets_the_unwanted_leave(plain: Table) -> None:
    plain.gang.restore(None, (), ran=False)
    check_inventory(plain.gang, 0, [row(3, 0)], 1.0)
    assert plain.names(1.0) == ["end 3 in 5"]
    plain.end(3, -15, 2.0)
    plain.orders(2.0)
    assert plain.heard() == [GangVacated()]


def test_a_new_controller_gives_one_who_leaves_no_more_than_its_grace(elastic: Table) -> None:
    elastic.gang.restore(None, (), ran=False)
    check_inventory(elastic.gang, 0, [row(3, 0, 1)], 1.0)
    assert elastic.names(1.0) == ["3: checkpoint, leave"]
    assert "end 3 in 5" in elastic.names(6.0)


def test_who_is_left_of_a_generation_on_a_lost_node_is_told_to_abandon_it(elastic: Table) -> None:
    running(elastic, (0, 0, 0), (1, 1, 0))
    elastic.gang.lose(1)
    elastic.want((0, 0, 0), now=10)
    assert elastic.names(10) == ["0: abandon g1", "0: g2 is 0"]


def test_a_new_controller_ends_a_plain_worker_that_another_is_to_replace(plain: Table) -> None:
    plain.gang.roster.generation = 4
    plain.gang.restore(Desired((GangMember(7, 0, 0),)), (), ran=True)
    check_inventory(plain.gang, 0, [row(3, 0)], 1.0)
    assert "end 3 in 5" in plain.names(1.0)


def test_nothing_is_due_when_all_is_well(plain: Table) -> None:
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.orders(0.0)
    assert next_resend_s(plain.gang, 0.0) == NEVER_S and plain.gang.next_s(0.0) == NEVER_S


def test_who_left_though_it_is_wanted_has_not_done_what_there_was_to_do() -> None:
    """An order to leave outlived its controller: all left by it, and the job counted as done."""
    table = Table(trains=True)
    table.want((0, 0, 0), (1, 0, 1))
    table.orders(0.0)
    table.start(0, 1)
    table.orders(0.1)
    table.enter(1, 0, 1, now=1.0)
    table.orders(1.0)
    table.heard()
    table.say(0, 2.0, left=WorkerLeft(1, 20))
    table.end(0, 0, 2.5)
    # The report that the other left is lost: its end says it as well.
    table.end(1, 0, 2.5, why=LEFT)
    assert [type(news) for news in table.heard()] == [WorkerEnded, WorkerEnded]


def taken_up(plain: Table, *rows: WorkerState, ran: bool = False) -> tuple[int, ...]:
    """Lets a new controller take up a gang of two; returns the workers that it finds lost."""
    plain.gang.roster.generation = 4
    plain.gang.restore(Desired((GangMember(2, 0, 0), GangMember(3, 1, 0))), (2, 3), ran=ran)
    check_inventory(plain.gang, 0, rows, 1.0)
    return plain.gang.find_missing(1.0)


def test_a_rank_whose_start_was_lost_with_a_controller_joins_those_that_began(
    plain: Table,
) -> None:
    assert taken_up(plain, WorkerState(JOB, 2, 4, 0)) == ()
    ((node, order),) = plain.orders(1.0)
    assert isinstance(order, StartWorker)
    assert (node, order.worker, order.generation) == (1, 3, 4)
    assert (order.rank, order.world_size) == (1, 2)
    plain.start(3, now=2.0, generation=4)
    plain.orders(2.0)
    assert plain.heard() == [GangFormed(4)]


def test_a_rank_that_did_its_part_alone_is_not_run_again_for_another_never_started(
    plain: Table,
) -> None:
    assert taken_up(plain, WorkerState(JOB, 2, 4, 0, exit_code=0)) == ()
    assert plain.names(1.0) == ["start 3@1.0 g4"]
    plain.start(3, now=2.0, generation=4)
    plain.orders(2.0)
    plain.end(3, 0, 9.0, node=1)
    plain.orders(9.0)
    assert plain.heard() == [GangFormed(4), UNREPORTED]


def test_a_rank_that_waits_for_its_gpu_after_a_takeover_starts_when_that_is_free(
    plain: Table,
) -> None:
    plain.held.add((1, 0))
    taken_up(plain, WorkerState(JOB, 2, 4, 0))
    assert plain.names(1.0) == []
    plain.held.clear()
    assert plain.names(2.0) == ["start 3@1.0 g4"]


@pytest.mark.parametrize("code", [1, -9])
def test_a_run_of_which_one_ended_badly_and_another_never_began_is_lost(
    plain: Table, code: int
) -> None:
    assert taken_up(plain, WorkerState(JOB, 2, 4, 0, exit_code=code)) == (3,)
    assert plain.gang.has_lost_run()


def test_a_run_that_was_whole_is_lost_with_one_of_its_workers(plain: Table) -> None:
    assert taken_up(plain, WorkerState(JOB, 2, 4, 0), ran=True) == (3,)
    assert plain.gang.has_lost_run()


def test_no_run_is_lost_where_none_began(plain: Table) -> None:
    not_now = WorkerState(JOB, 2, 4, 0, exit_code=125, why="node 0 has no GPU 0")
    assert taken_up(plain) == (2, 3) and not plain.gang.has_lost_run()
    assert taken_up(plain, not_now) == (3,) and not plain.gang.has_lost_run()


def test_what_an_earlier_run_did_on_a_lost_node_is_no_part_of_this_one(plain: Table) -> None:
    """Else any new request for the gang would end it, for it would seem to be changed."""
    plain.want((0, 0, 0))
    plain.orders(0.0)
    plain.start(0)
    plain.gang.lose(0)
    plain.gang.roster.vacate(1.0, 5.0, END)
    plain.orders(1.0)
    plain.want((1, 1, 0), now=2.0)
    plain.orders(2.0)
    plain.start(1, generation=2)
    plain.end(0, 0, 3.0)
    plain.want((1, 1, 0), now=4.0)
    assert plain.names(4.0) == ["forget 0"]
    assert not plain.gang.roster.is_leaving
