"""The membership of this worker: how it joins generations, switches, survives and leaves.

`wire.generation` decides which generation the worker proposes and may enter; this drives it around
process groups and the state of the job. A switch is agreed, never commanded. In each iteration
every member announces the generation that it proposes, and all enter it together at that step
boundary if all announce the same. A member that has heard of a newer order announces that one, and
no member switches until all have caught up. No member leaves alone.

When a generation breaks, its members keep the state of their last complete step and enter the
oldest generation that they have joined. Entering starts with comparing steps: members that are
behind (by one step at most) receive the state from those ahead, as joiners do.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import torch

from dovetail.train.data.samples import BatchSplit
from dovetail.train.membership.rendezvous import GroupBuilder, WorkerContext
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.state.state import TrainingState
from dovetail.train.sync.process_group import (
    COMPLETED,
    GroupBroken,
    Operation,
    WaitPolicy,
    WorkerGroup,
    agreed,
)
from dovetail.train.sync.state_transfer import StateReceiver, StateSender
from dovetail.wire.generation import (
    Broke,
    Entering,
    Event,
    Leaves,
    Send,
    ShowLife,
    Stalled,
    Trains,
)
from dovetail.wire.worker import Finished, FromWorker, Meeting, Regroup

WAIT_S = 0.1
ITERATIONS_OF_PATIENCE = 10
"""A training loop that shows no life for longer, and for longer than the stall, hangs."""
SAVE, LEAVE, LEARN, AGAIN = 2, 3, 4, 5
"""Indices in the announcement, after the generation and its square."""


class LeavingJob(Exception):
    """The newest generation does not include this worker, which exits."""


class StateLost(Exception):
    """The workers with the state are gone, and there is no checkpoint to continue from."""


@dataclass(frozen=True, slots=True)
class IterationOutcome:
    """What all members agreed on for the end of an iteration.

    `again`: the transfer of the state starts over, since the script changed the state meanwhile.
    """

    switch: bool
    save: bool
    leave: bool
    learning: bool
    again: bool = False


class MemberState(NamedTuple):
    """What a member reports of its state when it enters a generation.

    `known` is 2 for the whole state, 1 without the parts that no step changes, 0 for none.
    `trained`: its process has made a step. `script` is a checksum, as of `Membership`.
    """

    known: int
    step: int
    trained: int
    samples: int
    passes: int
    script: int


class Membership:
    """This worker among the others. Only the training loop may call its public methods."""

    def __init__(
        self,
        context: WorkerContext,
        parts: TrainingState,
        progress: TrainingPosition,
        *,
        batch_size: int,
        script: int,
        begin: Callable[[], TrainingPosition],
        enters: Callable[[], None],
    ) -> None:
        """`begin` loads the state that training starts from: a checkpoint, or the script's own.

        `enters` is called before this worker reports that it trains in a generation. `script` is a
        checksum of data, batches and length, equal on all workers that can train together.
        """
        self._context, self._parts, self._progress = context, parts, progress
        self._batch_size, self._script, self._begin = batch_size, script, begin
        self._enters = enters
        self._device = next(parts.model.parameters()).device
        self._builders: dict[int, GroupBuilder] = {}
        self._lock = threading.Lock()
        self._trained = False
        self._tainted = False
        self._whole = True
        self._announced = -1
        self._members: tuple[int, ...] = (context.me,)
        self._iteration_s, self._began_s = 0.0, time.monotonic()
        self._announcement = torch.zeros(6, dtype=torch.float64)
        self._agreeing: Operation = COMPLETED
        self._transfer: StateSender | StateReceiver | None = None
        self.group = WorkerGroup(-1, 0, 1)
        self.batch_split = BatchSplit(batch_size)
        self.learning: tuple[bool, ...] = (False,)
        self._alive_s = time.monotonic()
        context.mailbox.listen(prepare=self._prepare, stop=self._stop, show_life=self._show_life)

    @property
    def generation(self) -> int:
        """Returns the generation this worker trains in, -1 before the first."""
        return self._context.mailbox.generations.entered

    @property
    def is_catching_up(self) -> bool:
        """Returns whether this worker does not have the whole state yet."""
        return self.learning[self.group.rank]

    @property
    def leads(self) -> bool:
        """Returns whether this worker reports and saves: it is the first with the whole state."""
        return self.group.rank == self.learning.index(False)

    @property
    def has_state(self) -> bool:
        """Returns whether this worker has the whole state of the job after the last step."""
        return self._progress.known and self._whole and not self._tainted

    def first_messages(self) -> list[FromWorker]:
        """Returns what a new connection to the agent begins with.

        An earlier agent may have died with the address, for which the other members still wait.
        """
        mailbox = self._context.mailbox
        with mailbox.lock:
            hosted = mailbox.generations.hosted
        return [Meeting(g, self._context.server.address()) for g in hosted]

    def _handle(self, event: Event) -> None:
        """Passes an event to the protocol, and sends what follows."""
        for instruction in self._context.mailbox.handle(event):
            if isinstance(instruction, Send):
                self._context.send(instruction.message)

    # What the thread of the agent's connection calls.

    def _prepare(self, regroup: Regroup) -> None:
        builder = GroupBuilder(regroup, self._context, self._device)
        with self._lock:
            self._builders[regroup.generation] = builder
        builder.start()

    def _stop(self, generation: int) -> None:
        group = self.group
        if group.generation == generation:
            group.abandon()

    def _show_life(self, answer: ShowLife) -> None:
        """Answers an Abandon on behalf of the training loop, unless that hangs."""
        # The loop may be in the user's code for long, and cannot answer. For a loop that hangs,
        # nothing must be sent: the controller finds it by its silence.
        silent_s = time.monotonic() - self._alive_s
        if silent_s < self._stall_s():
            self._context.send(answer.lost)

    def _stall_s(self) -> float:
        return max(self._context.stall_s, ITERATIONS_OF_PATIENCE * self._iteration_s)

    def mark_alive(self) -> None:
        """Records that the training loop is alive."""
        self._alive_s = time.monotonic()

    # An iteration: announce, train, agree.

    def announce(self, *, save: bool) -> None:
        """Announces which generation this worker proposes to enter after this iteration.

        Raises GroupBroken if it is to leave without the others.
        """
        mailbox, transfer = self._context.mailbox, self._transfer
        if self.group.size > 1 and mailbox.generations.leaves_alone:
            raise GroupBroken("it is to leave without the others")
        now_s = time.monotonic()
        self._iteration_s, self._began_s = now_s - self._began_s, now_s
        self._alive_s = now_s
        # All members know which have the whole state, and so come to the same answer.
        holders = [m for m, learns in zip(self._members, self.learning, strict=True) if not learns]
        with mailbox.lock:
            g = mailbox.generations.propose(holders)
        self._drop_builders()
        self._announced = g
        again = isinstance(transfer, StateSender) and transfer.is_stale()
        learning = again or (transfer is not None and not transfer.complete)
        generations = mailbox.generations
        flags = (save or generations.save, generations.leave, learning, again)
        # A new tensor for each iteration: gloo may still write to that of a broken group.
        self._announcement = torch.tensor([g, g * g, *flags], dtype=torch.float64)
        if transfer is not None:
            transfer.begin()
        # Started before the backward pass, which hides it: no step waits for this sum.
        self._agreeing = self.group.sum_control(self._announcement)

    def agree(self) -> IterationOutcome:
        """Returns what all members agreed on. Raises GroupBroken."""
        self._agreeing.wait()
        # The sums over all members. The sums of a number and of its square show together whether
        # all announced the same one, so that one small reduction carries everything.
        sums = self._announcement.tolist()
        switch = self._announced != self.generation and agreed(sums[:2], self.group.size)
        return IterationOutcome(switch, *(sums[flag] > 0 for flag in (SAVE, LEAVE, LEARN, AGAIN)))

    def finish_transfer(self) -> None:
        """Waits until the slice that is being sent to joiners has arrived. Raises GroupBroken."""
        if self._transfer is not None:
            self._transfer.end()

    def record_step(self, verdict: IterationOutcome) -> None:
        """Records a complete step."""
        self._trained = True
        if isinstance(self._transfer, StateSender):
            self._transfer.stepped()
        # Not when the last slice arrives: only this step brings it up to the step of the senders.
        if isinstance(self._transfer, StateReceiver) and self._transfer.complete:
            self._progress.known, self._tainted = True, False
        if any(self.learning) and not verdict.learning:
            # All members read this from the same sum, and so end the transfer in the same
            # iteration. Otherwise they would split the next batch differently.
            self._transfer = None
            self.learning = (False,) * self.group.size

    def mark_whole(self) -> None:
        """Records that all members have the same state, also the parts that no step changes."""
        self._whole = True

    def restart_transfer(self) -> None:
        """Starts the transfer of the state again from the beginning. Raises GroupBroken."""
        if self.is_catching_up:
            self._progress.known = False
        self._start_transfer(again=True)

    def agree_all_well(self, well: bool) -> bool:
        """Returns whether all members are well. Raises GroupBroken."""
        count = torch.tensor([float(well)], dtype=torch.float64)
        # One member may take long to write a checkpoint: that is no stall.
        self.group.patience = self._patience(math.inf)
        self.group.sum_control(count).wait()
        self.group.patience = self._patience(self._stall_s())
        return int(count.item()) == self.group.size

    # Between iterations: entering, breaking, leaving.

    def switch(self, since_s: float) -> None:
        """Enters the generation that all announced, or raises LeavingJob if it is not a member."""
        with self._context.mailbox.lock:
            is_ready = self._context.mailbox.generations.is_ready(self._announced)
        if not is_ready:
            # A worker proposes a generation that it has not joined only to make way for it.
            raise LeavingJob
        if not self._try_to_enter(self._announced, since_s):
            self.enter_next(since_s)

    def give_up_generation(self, broken: GroupBroken) -> None:
        """Gives up the generation; the state stays that of the last complete step."""
        # Reported once: what breaks afterwards follows from the first failure.
        if not self._context.mailbox.generations.broken:
            self._handle(Broke(str(broken) or "broken"))
        # Before this worker enters another generation: the thread of the transfer must not write
        # into tensors that are trained there.
        with suppress(GroupBroken):
            self.finish_transfer()
        self._transfer, self._agreeing = None, COMPLETED
        self.group.discard(broken=True)  # so that the others notice at once

    def enter_next(self, since_s: float) -> None:
        """Enters the oldest generation that this worker has joined; waits until it has joined one.

        Raises LeavingJob when it has no place in the newest generation and can enter no older one,
        or when it is to leave: in no generation others could leave with it.
        """
        mailbox, generations = self._context.mailbox, self._context.mailbox.generations
        while True:
            self.mark_alive()
            # Read together: an order that comes between two looks could make this worker leave
            # although the order wants it.
            with mailbox.lock:
                open_ones = generations.open_generations
                ready = [g for g in open_ones if generations.is_ready(g)]
                is_left_out = generations.is_left_out
                leave = generations.leave
            if leave:
                raise LeavingJob
            if ready:
                # The oldest first: others may be in it already, or wait there for this one.
                if self._try_to_enter(ready[0], since_s):
                    return
            elif not open_ones and is_left_out:
                raise LeavingJob
            else:
                mailbox.wait(WAIT_S)

    def leave(self) -> None:
        """Reports that this worker ends."""
        self._handle(Leaves(self._progress.step))

    def finish(self) -> None:
        """Reports that the job is done."""
        self._handle(Finished(self._progress.step, self._progress.samples))

    def close(self) -> None:
        """Closes all connections."""
        self._drop_builders(all_of_them=True)
        self.group.discard()

    def _try_to_enter(self, generation: int, since_s: float) -> bool:
        try:
            self._enter(generation, since_s)
        except GroupBroken as broken:
            self.give_up_generation(broken)
            return False
        return True

    def _enter(self, generation: int, since_s: float) -> None:
        self._handle(Entering(generation))
        with self._lock:
            builder = self._builders.pop(generation)
        old, self.group = self.group, builder.take()
        # Checked after the assignment: an order to stop that came before it found no group to
        # abort, and one that comes later finds this one.
        if self._context.mailbox.generations.is_abandoned(generation):
            self.group.abandon()
        self._drop_builders()
        old.discard()
        self.group.patience = self._patience(self._stall_s())
        order = builder.regroup
        self._members = order.members
        self.batch_split = BatchSplit(
            order.batch_size or self._batch_size,
            len(order.members),
            order.steps,
            order.samples,
            self._parts.at_least,
        )
        self._share_state()
        p = self._progress
        # Before `Entered` is sent: it confirms the new bound of GPU memory to the controller, which
        # then starts other jobs on this GPU.
        self._enters()
        pause_s = time.monotonic() - since_s if self._trained else 0.0
        self._handle(Trains(p.step, p.samples, pause_s))

    def _share_state(self) -> None:
        """Determines which members have the newest state, and starts its transfer to the others."""
        p = self._progress
        rows = self._compare_states(p.step if p.known else 0, self._trained)
        if not any(row.known for row in rows):
            # No member has the state. The first one loads it, and the others receive it from there:
            # each reading the folder itself could find another checkpoint.
            self._load_first_state()
            rows = self._compare_states(p.step, False)
        # The newest state wins. At equal steps a whole state wins, since that also has what no
        # step changes, such as buffers.
        best = max(rows, key=lambda row: (row.known > 0, row.step, row.known, row.passes))
        if best.script != self._script:
            raise ValueError(
                "the other workers train on other data, in other batches, in another order or for"
                " longer or less: was the script changed since they began?"
            )
        self.learning = tuple((r.known, r.step) != (best.known, best.step) for r in rows)
        self._transfer = None
        if any(self.learning):
            self._start_transfer()
        self._whole = not self.learning[self.group.rank]
        if not self._whole:
            p.step, p.samples, p.passes, p.known = best.step, best.samples, best.passes, False
        # Sending while others train gains something only if some members train already.
        if any(self.learning) and not any(row.trained for row in rows):
            self._transfer_at_once()
        assert best.step == p.step

    def _compare_states(self, step: int, trained: bool) -> list[MemberState]:
        """Returns what all members report of their state, by rank. Raises GroupBroken."""
        p = self._progress
        known = p.known + (p.known and self._whole)
        mine = MemberState(known, step, trained, p.samples, p.passes, self._script)
        rows = self.group.gather(torch.tensor(mine, dtype=torch.int64)).tolist()
        return [MemberState(*row) for row in rows]

    def _load_first_state(self) -> None:
        """Loads the state that training starts from, on the first member."""
        if self.group.rank != 0:
            return
        start = self._begin()
        if self._tainted and start.step == 0:
            # Its own state is half received: not even the script's first state is left.
            raise StateLost
        p = self._progress
        p.step, p.samples, p.known = start.step, start.samples, True
        p.passes, p.loss = start.passes, start.loss
        self._tainted = False

    def _start_transfer(self, *, again: bool = False) -> None:
        """Starts the transfer of the state, from members that have it to the others."""
        ranks = range(self.group.size)
        receivers = [r for r in ranks if self.learning[r]]
        senders = [r for r in ranks if not self.learning[r]]
        # The receivers are spread evenly over the senders.
        served = {s: receivers[i :: len(senders)] for i, s in enumerate(senders)}
        me = self.group.rank
        if me in served:
            if served[me]:
                self._transfer = StateSender(self.group, served[me], self._parts, again=again)
        else:
            source = next(s for s, theirs in served.items() if me in theirs)
            # From here on its tensors are a mixture, until the last slice has arrived.
            self._tainted = True
            self._transfer = StateReceiver(self.group, source, self._parts)

    def _transfer_at_once(self) -> None:
        """Transfers the whole state before the first iteration: no member trains meanwhile."""
        if self._transfer is not None:
            self._transfer.run()
        if isinstance(self._transfer, StateReceiver):
            self._progress.known, self._tainted, self._whole = True, False, True
        self._transfer = None
        self.learning = (False,) * self.group.size

    def _reason_to_give_up(self) -> str | None:
        self.mark_alive()  # a loop that waits here does not hang
        generations = self._context.mailbox.generations
        if generations.is_abandoned(generations.entered):
            return "abandoned"
        return generations.broken or None

    def _patience(self, stall_s: float) -> WaitPolicy:
        return WaitPolicy(
            gives_up=self._reason_to_give_up,
            stalls=lambda what: self._handle(Stalled(what)),
            stall_s=stall_s,
        )

    def _drop_builders(self, *, all_of_them: bool = False) -> None:
        """Gives up the groups of generations that can no longer be entered."""
        mailbox = self._context.mailbox
        # Read under the lock that `_prepare` takes: a builder that is added after the look would
        # count as closed, and the worker would never join its generation.
        with self._lock, mailbox.lock:
            still_open = [] if all_of_them else mailbox.generations.open_generations
            old = [self._builders.pop(g) for g in sorted(self._builders) if g not in still_open]
        for builder in old:
            builder.drop()
