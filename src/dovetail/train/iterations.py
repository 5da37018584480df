"""The training loop behind a job: steps that all workers make or none, and what happens between.

`Job` is the part that a script sees.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dovetail.train.data.loader import Batch, BatchLoader, mix_seeds, seed_all, to_device
from dovetail.train.data.samples import Indices, SampleOrder
from dovetail.train.dry_run import DryRun
from dovetail.train.guards import ScriptGuard
from dovetail.train.measure.reporter import TrainingReporter
from dovetail.train.measure.stages import StageTimer
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
from dovetail.train.process import out_of_memory
from dovetail.train.process.background import exit_process
from dovetail.train.process.device_memory import DeviceMemory
from dovetail.train.process.device_stream import synchronize
from dovetail.train.process.environment import WorkerEnvironment, hide_secret
from dovetail.train.state.checkpoint import TrainingPosition
from dovetail.train.state.save_policy import CheckpointContents, SavePolicy, warn
from dovetail.train.state.state import TrainingState, hash_values
from dovetail.train.sync.broadcast import broadcast_settings
from dovetail.train.sync.gradients import Gradients
from dovetail.train.sync.process_group import GroupBroken, OperationStuck
from dovetail.train.sync.replica_check import broadcast_replica, compare_replicas
from dovetail.train.sync.state_transfer import flatten, is_dense
from dovetail.wire.worker import Regroup, Saved

CLOSING_S = 30.0
"""How long an exiting worker waits to deliver its last messages."""
SPOILED_EXIT = 4
"""The exit code of a worker that has no state to continue from; a new worker can start over."""


@dataclass(frozen=True, slots=True)
class Step:
    """How gradients become a step, and the largest micro-batch to compute them in."""

    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    schedule: str
    scaler: torch.amp.GradScaler | None
    clip_norm: float | None
    micro_batch: int

    def scaled(self, loss: Tensor) -> Tensor:
        """Returns the loss times the scaler's factor, if there is a scaler."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def make(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> None:
        """Steps the optimizer."""
        if self.scaler is not None:
            if all(p.grad is None for p in parameters):
                return  # every batch was left out, and a scaler requires gradients
            self.scaler.unscale_(optimizer)
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        if self.scaler is not None:
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()


class TrainingLoop:
    """Trains on this worker's part of the batches."""

    _with_agent = False

    def __init__(
        self,
        parts: TrainingState,
        order: SampleOrder,
        how: Step,
        about: WorkerEnvironment,
        *,
        loader: BatchLoader,
        folder: Path | None,
        checkpoint_s: float,
        data: int,
    ) -> None:
        """Connects to the agent. `data` is a checksum of the data."""
        self._parts, self._order, self._how = parts, order, how
        self._gradients = Gradients(parts.model, parts.optimizer)
        self.device = self._gradients.device
        self._memory = DeviceMemory(self.device)
        self._memory.bound(about.memory_bytes)
        self._largest = 0
        self._was_cut = False  # whether the policy had split batches when no worker was joining
        self._loader = loader
        self._guard = ScriptGuard(parts.optimizer, how.scheduler, parts.others)
        self._progress = TrainingPosition()
        self._watch = StageTimer(loader.loaders)
        place = folder or about.folder
        self._folder = place if not about.dry_run_steps else None
        self._checkpoint_s = about.checkpoint_s or checkpoint_s
        self._batch: Indices = order.batch_at(0)
        self._mine: list[Indices] = []
        self._shares: tuple[int, ...] = (0,)
        # What a batch needs next: 1 backward, 2 step, 0 nothing; 3: a call runs or has failed.
        self._due = 0
        self._data, self._compared_in, self._told = data, -1, set[str]()
        self._outcome: IterationOutcome | GroupBroken | None = None
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
        """Ends the process when the job continues without it, or cannot continue here."""
        try:
            yield
        except LeavingJob:
            self._membership.leave()
            self._close()
            raise exit_process(0) from None
        except StateLost:
            self._close()
            warn("nobody is left with the state of the job")
            raise exit_process(SPOILED_EXIT) from None
        except OperationStuck as stuck:
            warn(str(stuck))
            raise exit_process(SPOILED_EXIT) from None

    # An iteration.

    def _iteration(self) -> Iterator[Batch]:
        self._under_way, self._outcome = True, None
        try:
            self._begin()
        except GroupBroken as broken:
            self._outcome = broken
        if self._outcome is None and not self._mine:
            self._complete()
        while self._outcome is None:
            batch = self._load(self._mine[0])
            self._due = 1
            yield batch
            if self._due:
                raise RuntimeError(
                    "each batch needs job.backward(loss) and job.step(), and none may fail: to"
                    " skip a batch, call job.backward(loss, weight=0)"
                )
        self._conclude()

    def _begin(self) -> None:
        members = self._membership
        seldom = self._runs_ahead
        # Waiting for the device costs the overlap of loop and GPU, so only some steps are timed.
        if self._watch.look(seldom=seldom) and seldom:
            synchronize(self.device)  # or kernels of earlier iterations would count
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
        """Returns whether larger micro-batches may not fit, on a GPU shared with others."""
        ordered = self._mailbox.regroup
        bounded = ordered is not None and ordered.memory_bytes > 0
        return bounded or self._was_cut or self._membership.manner.steps > 1

    def _load(self, indices: Indices) -> Batch:
        with self._watch.input():
            read = self._loader.take(self._pass, indices, self._upcoming)
        self._watch.read(read.storage_s, read.cpu_s)
        # Random numbers (dropout) depend only on the position in the order of samples, so a step
        # that is repeated, or made by another worker, draws the same ones.
        seed_all(mix_seeds(self._order.seed, self._progress.samples, int(indices[0])))
        return to_device(read.batch, self.device)

    def _upcoming(self) -> Iterator[tuple[int, Indices]]:
        """Yields the micro-batches from now on, if the split does not change."""
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
            synchronize(self.device)  # or the rest of the backward pass would count as network
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
        except GroupBroken as broken:
            self._outcome = broken
            return
        self._outcome, self._stopped = verdict, stopped
        # All workers have the same sums and verdict, so all make this step, or all stop.
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
        """Returns whether the loop may be ahead of the device: timing would have to wait."""
        alone = self._membership.group.size == 1 and self._dry_run is None
        return alone and self.device.type == "cuda"

    def _level(self, *, new_pass: bool = False, whole: bool = False) -> None:
        """Broadcasts settings to workers that do not run the loop, or ran it with other values."""
        group = self._membership.group
        if group.size > 1 and (whole or new_pass or 0 in self._shares):
            takes = new_pass or not self._shares[group.rank]
            broadcast_settings(group, self._parts, source=self._source, takes=takes, whole=whole)
            self._guard.forget()

    # Between two iterations.

    def _conclude(self) -> None:
        """Carries out what the workers agreed on, or recovers from a failure."""
        outcome, self._outcome, self._under_way = self._outcome, None, False
        assert outcome is not None
        with self._exits():
            try:
                if isinstance(outcome, GroupBroken):
                    raise outcome
                self._boundary(outcome)
            except GroupBroken as broken:
                self._recover(broken)

    def _boundary(self, verdict: IterationOutcome) -> None:
        """Carries out what the workers agreed on. Raises GroupBroken, LeavingJob."""
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
        """Broadcasts what the script may change in its loop. Raises GroupBroken."""
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
        """Warns, once, if workers have different data. Raises GroupBroken."""
        checksums = self._membership.group.gather(torch.tensor([self._data]))
        if self._membership.leads and not (checksums == self._data).all():
            self._warn_once(
                "workers do not have the same data: what the script draws without a seed (a split,"
                " for example) differs between workers, and it may train on its validation samples"
            )

    def _warn_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warn(message)

    def _level_model(self) -> None:
        group = self._membership.group
        tensors = flatten([t for t in self._parts.trained() if is_dense(t)])
        same, as_large = compare_replicas(group, tensors)
        if same:
            return
        if self._membership.leads:
            self._warn_once(
                "workers did not have the same model: if the body of the loop changes parameters,"
                " move that into optimizer.register_step_post_hook(...)"
            )
        if as_large:
            broadcast_replica(group, tensors, first=group.rank == self._source)

    def _recover(self, broken: GroupBroken) -> None:
        """Rolls back the current iteration; the workers that are left repeat it."""
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
        """Frees GPU memory that the present micro-batches do not need: others may share the GPU."""
        if self._complete_or_stopped:
            return
        largest = max(map(len, self._share(self._progress.samples)), default=0)
        if largest != self._largest:
            self._memory.renew()
        self._largest = largest

    def _keep_within_bound(self) -> None:
        """Applies the newest memory limit: other jobs may have come to the GPU."""
        if self._mailbox.regroup is not None:
            self._memory.bound(self._mailbox.regroup.memory_bytes)

    def _save(self, *, leave: bool) -> None:
        """Saves; with `leave`, leaves once the file is safe. Raises GroupBroken, LeavingJob."""
        safe = not self._membership.leads or self._saving.save(at_once=leave)
        self._mailbox.checkpoint_done(left=leave)
        if leave and self._membership.agree_all_well(safe):
            raise LeavingJob

    # The beginning and the end.

    def _open(self, about: WorkerEnvironment) -> None:
        """Connects to the agent, if there is one."""
        hide_secret()
        identity, order = about.identity, self._order
        if identity is not None:
            if TrainingLoop._with_agent:
                raise RuntimeError("a submitted script can have only one Job: split the script")
            TrainingLoop._with_agent = True
            out_of_memory.watch()
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
        what = CheckpointContents(self._parts, self._progress, order, self._loss, self._data)
        self._saving = SavePolicy(
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
            script=hash_values(what.identity(), order.batch_size, order.total),
            begin=self._saving.first_state,
            enters=self._keep_within_bound,
        )
        self._reporter = TrainingReporter(
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
            self._progress.samples = 0  # a small data set is read again
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
            raise exit_process(0)

    def _lives(self) -> None:
        """Reports, from another thread, that the main thread is running."""
        self._membership.mark_alive()
        self._reporter.lives()

    def _close(self) -> None:
        self._pulse.close()
        self._guard.end()
        self._saving.close()
        self._loader.close()
        self._membership.close()
        self._agent.close(CLOSING_S)
