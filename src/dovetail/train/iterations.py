"""The iterations of a job: a step that all workers make or none, and what happens between two.

`Job` is what a script sees of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dovetail.train.data.loader import Loader, mixed, moved, seed_all
from dovetail.train.data.samples import Indices, Order
from dovetail.train.dry_run import DryRun
from dovetail.train.guards import Guard
from dovetail.train.measure.reporter import Reporter
from dovetail.train.measure.stages import Stopwatch
from dovetail.train.membership.agent_connection import AgentChannel, AgentConnection, NoAgent
from dovetail.train.membership.liveness import LivenessThread
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.membership.membership import (
    IterationOutcome,
    LeavingJob,
    Membership,
    StateLost,
    WorkerContext,
)
from dovetail.train.membership.rendezvous import RendezvousServer
from dovetail.train.process import out_of_memory as no_room
from dovetail.train.process.background import leave
from dovetail.train.process.device_memory import DeviceMemory
from dovetail.train.process.device_stream import computed
from dovetail.train.process.environment import Surroundings, hide_secret
from dovetail.train.state.checkpoint import Progress
from dovetail.train.state.save_policy import Saving, What, warn
from dovetail.train.state.state import Parts, number_of
from dovetail.train.sync.broadcast import level
from dovetail.train.sync.gradients import Gradients
from dovetail.train.sync.process_group import Broken, Stuck
from dovetail.train.sync.replica_check import alike, make_alike
from dovetail.train.sync.state_transfer import flattened, is_dense
from dovetail.wire.worker import Regroup, Saved

CLOSING_S = 30.0
"""How long a worker that ends waits until its last words are said, if anybody is there to hear."""
SPOILED_EXIT = 4
"""The exit code of a worker that has nothing to go on from; a fresh one can begin anew."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a step is made of a gradient, and in how large pieces that is computed."""

    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    schedule: str
    scaler: torch.amp.GradScaler | None
    clip_norm: float | None
    micro_batch: int

    def scaled(self, loss: Tensor) -> Tensor:
        """Returns a loss times the factor of the scaler, if there is one."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def make(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
        """Makes the step."""
        if self.scaler is not None:
            if all(p.grad is None for p in parameters):
                return  # all of it was left out, and a scaler insists on gradients
            self.scaler.unscale_(optimizer)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        if self.scaler is not None:
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()


class Iterations:
    """What a worker does with its part of the batches."""

    _with_agent = False

    def __init__(
        self,
        parts: Parts,
        order: Order,
        how: Step,
        about: Surroundings,
        *,
        loader: Loader,
        folder: Path | None,
        checkpoint_s: float,
        data: int,
    ) -> None:
        """Gets ready, and in touch with the agent. `data` is a number for them."""
        self._parts, self._order, self._how = parts, order, how
        self._gradients = Gradients(parts.model, parts.optimizer)
        self.device = self._gradients.device
        self._memory = DeviceMemory(self.device)
        self._memory.bound(about.memory_bytes)
        self._largest = 0
        self._was_cut = False  # batches, by the policy, when all members last had the state
        self._loader = loader
        self._guard = Guard(parts.optimizer, how.scheduler, parts.others)
        self._progress = Progress()
        self._watch = Stopwatch(loader.loaders)
        place = folder or about.folder
        self._folder = place if not about.dry_run_steps else None
        self._checkpoint_s = about.checkpoint_s or checkpoint_s
        self._batch: Indices = order.batch_at(0)
        self._mine: list[Indices] = []
        self._shares: tuple[int, ...] = (0,)
        # What a batch needs next: 1 backward, 2 step, 0 nothing. 3: it was begun, and failed maybe.
        self._due = 0
        self._data, self._compared_in, self._told = data, -1, set[str]()
        self._outcome: IterationOutcome | Broken | None = None
        self._under_way = self._stopping = self._ends = self._stopped = False
        self._open(about)

    @property
    def _complete_or_stopped(self) -> bool:
        return self._stopped or self._progress.samples >= self._order.total

    @property
    def _pass(self) -> int:
        return self._progress.samples // self._order.per_epoch

    def _loss(self) -> float | None:
        loss = self._gradients.loss()
        return self._progress.loss if loss is None else loss

    @contextmanager
    def _exits(self) -> Iterator[None]:
        """Ends the process when the job goes on without it, or cannot go on here."""
        try:
            yield
        except LeavingJob:
            self._membership.leave()
            self._close()
            raise leave(0) from None
        except StateLost:
            self._close()
            warn("nobody is left with the state of the job")
            raise leave(SPOILED_EXIT) from None
        except Stuck as stuck:
            warn(str(stuck))
            raise leave(SPOILED_EXIT) from None

    # An iteration.

    def _iteration(self) -> Iterator[Any]:
        self._under_way, self._outcome = True, None
        try:
            self._begin()
        except Broken as broken:
            self._outcome = broken
        if self._outcome is None and not self._mine:
            self._complete()
        while self._outcome is None:
            batch = self._load(self._mine[0])
            self._due = 1
            yield batch
            if self._due:
                raise RuntimeError(
                    "each batch needs job.backward(loss) and job.step(), none may fail; to leave"
                    " one out: job.backward(loss, weight=0)"
                )
        self._conclude()

    def _begin(self) -> None:
        members = self._membership
        seldom = self._runs_ahead
        if self._watch.look(seldom=seldom) and seldom:
            computed(self.device)  # what earlier iterations gave it is none of this one's time
        self._watch.begin()
        if self._dry_run is not None:
            members.manner = self._dry_run.manner()
        self._ends = self._stopping
        self._batch = self._order.batch_at(self._progress.samples, members.manner.batch_size)
        self._shares = members.manner.shares(len(self._batch), members.learning)
        self._mine = [] if self._ends else self._share(self._progress.samples)
        self._gradients.begin(members.group)
        members.announce(save=members.leads and self._saving.due)

    def _share(self, position: int) -> list[Indices]:
        members = self._membership
        batch = self._order.batch_at(position, members.manner.batch_size)
        return members.manner.micro_batches(
            batch,
            members.group.rank,
            members.learning,
            at_most=self._how.micro_batch,
            in_pieces=self._memory_is_short,
        )

    @property
    def _memory_is_short(self) -> bool:
        """Returns whether a GPU that others use may not hold a larger part of a batch at once."""
        ordered = self._mailbox.regroup
        bounded = ordered is not None and ordered.memory_bytes > 0
        return bounded or self._was_cut or self._membership.manner.steps > 1

    def _load(self, indices: Indices) -> Any:
        with self._watch.input():
            read = self._loader.take(self._pass, indices, self._upcoming)
        self._watch.read(read.storage_s, read.cpu_s)
        # Dropout and the like depend on where in the order of samples we are, and nothing else.
        seed_all(mixed(self._order.seed, self._progress.samples, int(indices[0])))
        return moved(read.batch, self.device)

    def _upcoming(self) -> Iterator[tuple[int, Indices]]:
        """Yields the micro-batches from now on, if nothing changes."""
        position, mine = self._progress.samples, list(self._mine)
        batch_size = self._membership.manner.batch_size
        while position < self._order.total:
            yield from ((position // self._order.per_epoch, indices) for indices in mine)
            position += len(self._order.batch_at(position, batch_size))
            if position < self._order.total:
                mine = self._share(position)

    @property
    def _source(self) -> int:
        """Returns the first worker with samples: it runs the body of the loop."""
        return next(i for i, count in enumerate(self._shares) if count)

    def _complete(self) -> None:
        """Makes the step that all workers make, or none."""
        members, p = self._membership, self._progress
        rank = members.group.rank
        if self._watch.is_timing:
            computed(self.device)  # or the rest of the backward pass would count as network
        try:
            with self._watch.network():
                stopped = self._gradients.finish(
                    self._shares[rank] / len(self._batch),
                    first=rank == self._source,
                    end=self._ends,
                )
                verdict = members.agree()
                members.finish_transfer()
                if not stopped:
                    self._level(new_pass=p.samples % self._order.per_epoch == 0)
        except Broken as broken:
            self._outcome = broken
            return
        self._outcome, self._stopped = verdict, stopped
        if not stopped:
            self._guard.allow(True)
            self._how.make(self._parts.optimizer, self._gradients.parameters)
            self._guard.allow(False)
            self._gradients.made()
            p.step += 1
            p.samples += len(self._batch)
            if self._how.scheduler is not None and (
                self._how.schedule == "step" or p.samples % self._order.per_epoch == 0
            ):
                self._guard.scheduled()
            if not any(members.learning):
                self._was_cut = members.manner.steps > 1
            members.record_step(verdict)
            self._watch.end()

    @property
    def _runs_ahead(self) -> bool:
        """Returns whether the loop may be ahead of the device: it waits for it only to be timed."""
        alone = self._membership.group.size == 1 and self._dry_run is None
        return alone and self.device.type == "cuda"

    def _level(self, *, new_pass: bool = False, whole: bool = False) -> None:
        """Gives settings to those that do not run the loop, or ran it with other numbers."""
        group = self._membership.group
        if group.size > 1 and (whole or new_pass or 0 in self._shares):
            takes = new_pass or not self._shares[group.rank]
            level(group, self._parts, source=self._source, takes=takes, whole=whole)
            self._guard.forget()

    # Between two iterations.

    def _conclude(self) -> None:
        """Does what was agreed on, or gives up what broke."""
        outcome, self._outcome, self._under_way = self._outcome, None, False
        assert outcome is not None
        with self._exits():
            try:
                if isinstance(outcome, Broken):
                    raise outcome
                self._boundary(outcome)
            except Broken as broken:
                self._recover(broken)

    def _boundary(self, verdict: IterationOutcome) -> None:
        """Does what was agreed on. Raises Broken, Leaving."""
        since_s = time.monotonic()
        if self._dry_run is not None:
            self._tried(self._dry_run)
        if self._complete_or_stopped:
            return
        if self._membership.leads:
            self._reporter.iterated(self._membership.generation, self._gradients)
        if not verdict.learning:
            self._level_all()
        if verdict.save or verdict.leave:
            self._save(leave=verdict.leave)
        if verdict.switch:
            self._gradients.release()
            self._membership.switch(since_s)
            self._regrouped()
        elif verdict.again:
            self._membership.restart_transfer()

    def _level_all(self) -> None:
        """Gives all that may have changed in the loop to who did not run it. Raises Broken."""
        members = self._membership
        group, without = members.group, 0 in self._shares
        if without:
            self._level(whole=True)
            self._gradients.level_buffers(group, group.rank == self._source)
        if without or (group.size > 1 and self._progress.samples % self._order.per_epoch == 0):
            self._level_model()
        if without:
            members.mark_whole()
        if group.size > 1 and self._compared_in != group.generation:
            self._compared_in = group.generation
            self._compare_data()

    def _compare_data(self) -> None:
        """Tells, once, if workers do not have the same data. Raises Broken."""
        said = self._membership.group.gather(torch.tensor([self._data]))
        if self._membership.leads and not (said == self._data).all():
            self._tell_once(
                "workers do not have the same data: what the script draws without a seed (a split,"
                " say) is another thing in each, and it may train on what it validates on"
            )

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            warn(what)

    def _level_model(self) -> None:
        group = self._membership.group
        tensors = flattened([t for t in self._parts.trained() if is_dense(t)])
        same, as_large = alike(group, tensors)
        if same:
            return
        if self._membership.leads:
            self._tell_once(
                "workers did not have the same model: does the loop change parameters itself, in"
                " its body? That belongs into optimizer.register_step_post_hook(...)"
            )
        if as_large:
            make_alike(group, tensors, first=group.rank == self._source)

    def _recover(self, broken: Broken) -> None:
        """Gives up the iteration that is under way; it is done again by those who are left."""
        since_s = time.monotonic()
        self._membership.give_up_generation(broken)
        self._gradients.take_back()
        self._membership.enter_next(since_s)
        self._regrouped()

    def _regrouped(self) -> None:
        self._loader.forget()
        self._watch.forget()
        self._reporter.restart()
        self._guard.forget()
        self._fit_memory()

    def _fit_memory(self) -> None:
        """Keeps no more of the GPU than the present micro-batches need: it may be shared now."""
        if self._complete_or_stopped:
            return
        largest = max(map(len, self._share(self._progress.samples)), default=0)
        if largest != self._largest:
            self._memory.renew()
        self._largest = largest

    def _keep_within_bound(self) -> None:
        """Takes the newest bound of memory that was told: others may have come to the GPU."""
        if self._mailbox.regroup is not None:
            self._memory.bound(self._mailbox.regroup.memory_bytes)

    def _save(self, *, leave: bool) -> None:
        """Saves, and leaves when that was asked and the file is safe. Raises Broken, Leaving."""
        safe = not self._membership.leads or self._saving.save(at_once=leave)
        self._mailbox.checkpoint_done(left=leave)
        if leave and self._membership.agree_all_well(safe):
            raise LeavingJob

    # The beginning and the end.

    def _open(self, about: Surroundings) -> None:
        """Gets in touch with the agent, if there is one."""
        hide_secret()
        identity, order = about.identity, self._order
        if identity is not None:
            if Iterations._with_agent:
                raise RuntimeError("a script that is submitted has one Job: make it several jobs")
            Iterations._with_agent = True
            no_room.watch()
        number = identity.number if identity is not None else 0
        self._mailbox = mailbox = Mailbox(number)
        line = AgentConnection(identity, mailbox) if identity is not None else None
        self._agent: AgentChannel = line or NoAgent()
        self._dry_run: DryRun | None = None
        if about.dry_run_steps:
            self._dry_run = DryRun(
                about.dry_run_steps,
                about.dry_run_file,
                batch_size=order.batch_size,
                at_least=min(self._parts.at_least, order.batch_size),
                model=type(self._parts.model).__name__,
            )
        what = What(self._parts, self._progress, order, self._loss, self._data)
        self._saving = Saving(
            self._folder,
            self._checkpoint_s,
            what,
            told=lambda step, samples: self._agent.send(Saved(step, samples)),
            waits=self._lives,
        )
        self._membership = Membership(
            WorkerContext(
                me=number,
                agent=self._agent,
                mailbox=mailbox,
                server=RendezvousServer(about.at),
                address=about.at,
                stall_s=about.stall_s,
            ),
            self._parts,
            self._progress,
            batch_size=order.batch_size,
            script=number_of(what.identity(), order.batch_size, order.total),
            begin=self._saving.first_state,
            enters=self._keep_within_bound,
        )
        self._reporter = Reporter(
            self._agent,
            self._progress,
            self._watch,
            self._memory,
            total=order.total,
            every_s=about.report_s,
        )
        self._pulse = LivenessThread(self._lives)
        if line is None:
            mailbox.hear(Regroup(0, (0,)))
        else:
            self._pulse.start()
            line.open(generation=lambda: self._membership.generation, again=self._membership.again)

    def _tried(self, dry_run: DryRun) -> None:
        dry_run.iterated(self._watch, self._memory)
        if self._progress.samples >= self._order.total:
            self._progress.samples = 0  # few data are read again
            self._reporter.restart()
        if dry_run.over:
            dry_run.report(sum(p.numel() for p in self._gradients.parameters), self.device)
            self._close()
            raise SystemExit(0)

    def _finish(self) -> None:
        if self._membership.leads:
            self._saving.save_the_end()
        self._membership.finish()
        self._close()
        if self._membership.is_catching_up:  # it has half a model: no script must come to see that
            raise leave(0)

    def _lives(self) -> None:
        """Hears, on another thread, that this one does something."""
        self._membership.mark_alive()
        self._reporter.lives()

    def _close(self) -> None:
        self._pulse.close()
        self._guard.end()
        self._saving.close()
        self._loader.close()
        self._membership.close()
        self._agent.close(CLOSING_S)
