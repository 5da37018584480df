"""What one member makes of what the others say: who has the state, who goes on, who answers."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch")

import torch
from train_scene import Scene

from dovetail.train.data.samples import BatchSplit
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.membership.membership import Membership, StateLost
from dovetail.train.membership.rendezvous import GroupBuilder, RendezvousServer, WorkerContext
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.sync.process_group import COMPLETED, Operation, WorkerGroup
from dovetail.wire.generation import Entering, Trains
from dovetail.wire.worker import Abandon, FromWorker, Lost, Ready, Regroup

SCRIPT = 11
STALL_S = 60.0


class Others(WorkerGroup):
    """A group whose other members say what the test lets them say."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(3, rank, size)
        self.rows: Sequence[Sequence[int]] = ()
        self.add: Sequence[float] = ()

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        rows = [torch.tensor(other) for other in self.rows]
        rows[self.rank : self.rank] = [row]
        return torch.stack(rows)

    def sum_control(self, values: torch.Tensor) -> Operation:
        values[: len(self.add)] += torch.tensor(self.add, dtype=values.dtype)
        return COMPLETED


def context_of(number: int, send: Callable[[FromWorker], None]) -> WorkerContext:
    host = "127.0.0.1"
    return WorkerContext(number, send, Mailbox(number), RendezvousServer(host), host, STALL_S)


def member(
    rank: int = 0,
    size: int = 2,
    *,
    step: int = 0,
    known: bool = False,
    script: int = SCRIPT,
    begin: Callable[[], TrainingPosition] = lambda: TrainingPosition(known=True),
) -> tuple[Membership, Others]:
    """Returns worker 10 + rank of generation 3, among others that are 10, 11, ..."""
    context = context_of(10 + rank, lambda _: None)
    progress = TrainingPosition(step, 16 * step, known)
    one = Membership(
        context,
        Scene().parts(),
        progress,
        batch_size=16,
        script=script,
        begin=begin,
        enters=lambda: None,
    )
    one.group = others = Others(rank, size)
    one._members = tuple(range(10, 10 + size))
    one._prepare = lambda _: None  # type: ignore[method-assign]
    one._context.mailbox.listen(prepare=one._prepare, stop=one._stop, show_life=one._show_life)
    for event in (Regroup(3, one._members), Ready(3), Entering(3), Trains(step, 16 * step)):
        one._context.mailbox.handle(event)
    one._trained, one.learning = known, (False,) * size
    one.batch_split = BatchSplit(16, size)
    one._start_transfer = lambda **_: None  # type: ignore[method-assign]
    return one, others


def row(step: int, *, known: bool = True, script: int = SCRIPT) -> Sequence[int]:
    """Returns what another member says of itself."""
    other, group = member(0, 1, step=step, known=known, script=script)
    said: list[Sequence[int]] = []
    group.gather = lambda row: said.append(row.tolist()) or row[None]  # type: ignore[func-returns-value,method-assign]
    other._share_state()
    return said[0]


def test_who_is_a_step_behind_learns_from_who_is_ahead() -> None:
    behind, others = member(1, step=4, known=True)
    others.rows = [row(5)]
    behind._share_state()
    assert behind.learning == (False, True) and behind.is_catching_up
    assert (behind._progress.step, behind._progress.known) == (5, False)
    ahead, others = member(0, step=5, known=True)
    others.rows = [row(4)]
    ahead._share_state()
    assert ahead.learning == (False, True) and not ahead.is_catching_up
    assert ahead._progress == TrainingPosition(5, 80, True)


def test_the_first_with_the_whole_state_leads() -> None:
    """It reports and saves: half a state must never become a checkpoint."""
    joiner, others = member(0, 3)
    others.rows = [row(5), row(5)]
    joiner._share_state()
    assert joiner.learning == (True, False, False) and not joiner.leads
    for rank, leads in ((1, True), (2, False)):
        trainer, others = member(rank, 3, step=5, known=True)
        others.rows = [row(0, known=False), row(5)]
        trainer._share_state()
        assert trainer.leads is leads


def test_members_of_another_script_do_not_train_together() -> None:
    joiner, others = member(1)
    others.rows = [row(5, script=SCRIPT + 1)]
    with pytest.raises(ValueError, match="was the script changed"):
        joiner._share_state()


def test_who_has_half_a_state_begins_only_from_a_checkpoint() -> None:
    one, _ = member(0, 1)
    one._tainted = True
    with pytest.raises(StateLost):
        one._share_state()
    one, _ = member(0, 1, begin=lambda: TrainingPosition(7, 112, True))
    one._tainted = True
    one._share_state()
    assert one._progress == TrainingPosition(7, 112, True) and not one._tainted


def test_who_has_the_state_does_not_leave_before_others_have_it() -> None:
    one, _ = member(0, 2, step=5, known=True)
    one._context.mailbox.receive(Regroup(4, (11, 12)))
    one.learning = (False, True)
    one.announce(save=False)
    assert one._announced == 3
    one.learning = (False, False)
    one.announce(save=False)
    assert one._announced == 4


class Racing:
    """A lock that an order of the agent gets ahead of, the first time that it is taken."""

    def __init__(self, one: Membership, order: Regroup) -> None:
        self._lock, self._orders = threading.Lock(), [order]
        self._deliver = one._context.mailbox.receive

    def __enter__(self) -> None:
        while self._orders:
            self._deliver(self._orders.pop())
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_group_ordered_while_old_ones_are_dropped_is_kept() -> None:
    """If it were dropped too, the worker would never join that generation."""
    one, _ = member(0, 2, step=5, known=True)

    def prepare(regroup: Regroup) -> None:
        with one._lock:
            one._builders[regroup.generation] = GroupBuilder(regroup, one._context, one._device)

    one._context.mailbox.listen(prepare=prepare, stop=one._stop, show_life=one._show_life)
    one._lock = Racing(one, Regroup(4, (10,)))  # type: ignore[assignment]
    one._drop_builders()
    assert list(one._builders) == [4] and not one._builders[4]._unwanted


@pytest.mark.parametrize(("theirs", "switches"), [(3, False), (4, True), (5, False)])
def test_nobody_switches_unless_all_announce_the_same(theirs: int, *, switches: bool) -> None:
    one, others = member(0, 2, step=5, known=True)
    others.add = (theirs, theirs * theirs)
    one._context.mailbox.receive(Regroup(4, (11,)))
    one.announce(save=False)
    assert one.agree().switch is switches


def test_all_are_well_only_if_each_is() -> None:
    one, others = member(0, 3)
    others.add = (2.0,)
    assert one.agree_all_well(True) and not one.agree_all_well(False)
    others.add = (1.0,)
    assert not one.agree_all_well(True)


def test_a_training_loop_that_hangs_does_not_answer() -> None:
    """The thread that listens lives on; if it answered nobody would ever find the loop."""
    sent: list[FromWorker] = []
    one, _ = member(0, 2, step=5, known=True)
    one._context = dataclasses.replace(one._context, send=sent.append)
    one.mark_alive()
    one._context.mailbox.receive(Abandon(3))
    assert sent == [Lost(3, "abandoned")]
    one._alive_s -= STALL_S + 1
    one._context.mailbox.receive(Abandon(3))
    assert sent == [Lost(3, "abandoned")]


class Greedy:
    """A lock after which whoever waits for the group of a builder has it at once."""

    def __init__(self, builder: GroupBuilder) -> None:
        self._builder, self._lock = builder, threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self._builder._group is not None:
            self._builder.take()


def test_who_enters_at_once_has_said_that_it_is_ready() -> None:
    sent: list[FromWorker] = []
    context = context_of(10, sent.append)
    context.mailbox.receive(Regroup(4, (10,)))
    builder = GroupBuilder(Regroup(4, (10,)), context, torch.device("cpu"))
    builder._lock = Greedy(builder)  # type: ignore[assignment]
    builder._run()
    (ready,) = sent
    assert isinstance(ready, Ready) and ready.generation == 4
    assert builder._group is None
