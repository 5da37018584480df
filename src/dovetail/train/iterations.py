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
from dovetail.train.measure.reporter import TrainingReports
from dovetail.train.measure.stages import INPUT, NETWORK, StageTimer
from dovetail.train.membership.agent_connection import AgentConnection
from dovetail.train.membership.liveness import LivenessThread
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.membership.membership import (
    IterationOutcome,
    LeavingJob,
    Membership,
    StateLost,
)
from dovetail.train.membership.rendezvous import RendezvousServer, WorkerContext
from dovetail.train.process import out_of_memory
from dovetail.train.process.background import exit_process
from dovetail.train.process.device import DeviceMemory, synchronize
from dovetail.train.process.environment import WorkerEnvironment, hide_secret, warn
from dovetail.train.state.checkpoint import DATA, CheckpointPolicy, TrainingPosition
from dovetail.train.state.state import TrainingState, hash_values
from dovetail.train.sync.gradients import Gradients
from dovetail.train.sync.process_group import GroupBroken, OperationStuck
from dovetail.train.sync.replicas import ModelReplicas
from dovetail.wire.generation import CheckpointDone
from dovetail.wire.worker import FromWorker, Regroup, Saved

CLOSING_S = 30.0
"""How long an exiting worker waits to deliver its last messages."""
SPOILED_EXIT = 4
"""The exit code of a worker that has no state to continue from; a new worker can start over."""
NOTHING, BACKWARD, STEP, IN_CALL = range(4)
"""What the script must call next for its batch; `IN_CALL`: a call is running, or has failed."""


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
        update: Step,
        environment: WorkerEnvironment,
        *,
        loader: BatchLoader,
        folder: Path | None,
        checkpoint_s: float,
        data: int,
    ) -> None:
        """Connects to the agent. `data` is a checksum of the data."""
        self._parts, self._order, self._update = parts, order, update
        self._gradients = Gradients(parts.model, parts.optimizer)
        self.device = self._gradients.device
        self._memory = DeviceMemory(self.device)
        self._memory.bound(environment.memory_bytes)
        self._largest = 0
        self._was_cut = False  # whether the policy had split batches when no worker was joining
        self._loader = loader
        self._guard = ScriptGuard(parts.optimizer, update.scheduler, parts.others)
        self._progress = TrainingPosition()
        self._timer = StageTimer(loader.loaders)
        self._batch: Indices = order.batch_at(0)
        self._mine: list[Indices] = []
        self._shares: tuple[int, ...] = (0,)
        self._due = NOTHING
        self._replicas = ModelReplicas(parts, self._gradients, data)
        self._outcome: IterationOutcome | GroupBroken | None = None
        self._under_way = self._stopping = self._ends = self._stopped = False
        self._mailbox = Mailbox(environment.number)
        self._saving = CheckpointPolicy(
            None if environment.dry_run_steps else folder or environment.folder,
            environment.checkpoint_s or checkpoint_s,
            parts,
            self._progress,
            {**order.identity(), DATA: data},
            loss=self._loss,
            on_saved=lambda step, samples: self._send(Saved(step, samples)),
            while_waiting=self._mark_alive,
        )
        self._dry_run = self._prepare_dry_run(environment)
        self._connect(environment)

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
        """Exits the process when the job continues without it, or cannot continue here."""
        try:
            yield
        except LeavingJob:
            self._membership.leave()
            self._close()
            raise exit_process(0) from None
        except StateLost:
            self._close()
            warn("no worker is left with the state of the job")
            raise exit_process(SPOILED_EXIT) from None
        except OperationStuck as stuck:
            warn(str(stuck))
            raise exit_process(SPOILED_EXIT) from None

    # An iteration.

    def _iteration(self) -> Iterator[Batch]:
        self._under_way, self._outcome = True, None
        # A broken group ends the iteration, which `_conclude` rolls back. As an exception here, it
        # would end the loop of the script.
        try:
            self._begin()
        except GroupBroken as broken:
            self._outcome = broken
        if self._outcome is None and not self._mine:
            self._complete()
        while self._outcome is None:
            batch = self._load(self._mine[0])
            self._due = BACKWARD
            yield batch
            if self._due != NOTHING:
                raise RuntimeError(
                    "each batch needs job.backward(loss) and job.step(), and none may fail: to"
                    " skip a batch, call job.backward(loss, weight=0)"
                )
        self._conclude()

    def _begin(self) -> None:
        members = self._membership
        seldom = self._runs_ahead
        # Waiting for the device costs the overlap of loop and GPU, so only some steps are timed.
        if self._timer.look(seldom=seldom) and seldom:
            synchronize(self.device)  # or kernels of earlier iterations would count
        self._timer.begin()
        if self._dry_run is not None:
            members.batch_split = self._dry_run.next_split()
        # A stop() from here on counts for the next iteration: all workers must announce before the
        # sums of this one whether they have samples.
        self._ends = self._stopping
        self._batch = self._order.batch_at(self._progress.samples, members.batch_split.batch_size)
        self._shares = members.batch_split.shares(len(self._batch), members.learning)
        self._mine = [] if self._ends else self._share(self._progress.samples)
        self._gradients.begin(members.group)
        members.announce(save=members.leads and self._saving.due)

    def _share(self, position: int) -> list[Indices]:
        members = self._membership
        batch = self._order.batch_at(position, members.batch_split.batch_size)
        return members.batch_split.micro_batches(
            batch,
            members.group.rank,
            members.learning,
            at_most=self._update.micro_batch,
            in_pieces=self._memory_is_short,
        )

    @property
    def _memory_is_short(self) -> bool:
        """Returns whether larger micro-batches may not fit, on a GPU shared with others."""
        order = self._mailbox.generations.ordered
        bounded = order is not None and order.memory_bytes > 0
        return bounded or self._was_cut or self._membership.batch_split.steps > 1

    def _load(self, indices: Indices) -> Batch:
        with self._timer.waiting(INPUT):
            read = self._loader.take(self._pass, indices, self._upcoming)
        self._timer.read(read.storage_s, read.cpu_s)
        # Random numbers (dropout) depend only on the position in the order of samples, so a step
        # that is repeated, or made by another worker, draws the same ones.
        seed_all(mix_seeds(self._order.seed, self._progress.samples, int(indices[0])))
        return to_device(read.batch, self.device)

    def _upcoming(self) -> Iterator[tuple[int, Indices]]:
        """Yields the micro-batches from now on, if the split does not change."""
        position, mine = self._progress.samples, list(self._mine)
        batch_size = self._membership.batch_split.batch_size
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
        """Makes the step, if all workers do; else records that the generation broke."""
        members, p = self._membership, self._progress
        rank = members.group.rank
        if self._timer.is_timing:
            synchronize(self.device)  # or the rest of the backward pass would count as network
        try:
            with self._timer.waiting(NETWORK):
                # Collectives, so all workers make them in this order.
                stopped = self._gradients.finish(
                    self._shares[rank] / len(self._batch),
                    first=rank == self._source,
                    end=self._ends,
                )
                verdict = members.agree()
                # Before the step, which changes the tensors that the transfer reads.
                members.finish_transfer()
                # Before the step too, which needs the learning rates that the loop has set.
                if not stopped:
                    self._broadcast_settings(new_pass=p.samples % self._order.per_epoch == 0)
        except GroupBroken as broken:
            self._outcome = broken
            return
        self._outcome, self._stopped = verdict, stopped
        # From here on nothing can fail on one worker alone. All have the same sums and the same
        # outcome, so all make this step, or all stop.
        if not stopped:
            self._guard.allow(True)
            self._update.make(self._parts.optimizer, self._gradients.parameters)
            self._guard.allow(False)
            self._gradients.commit()
            p.step += 1
            p.samples += len(self._batch)
            if self._update.scheduler is not None and (
                self._update.schedule == "step" or p.samples % self._order.per_epoch == 0
            ):
                self._guard.scheduled()
            if not any(members.learning):
                self._was_cut = members.batch_split.steps > 1
            members.record_step(verdict)
            self._timer.end()

    @property
    def _runs_ahead(self) -> bool:
        """Returns whether the loop may be ahead of the device: timing would have to wait."""
        alone = self._membership.group.size == 1 and self._dry_run is None
        return alone and self.device.type == "cuda"

    def _broadcast_settings(self, *, new_pass: bool = False, whole: bool = False) -> None:
        """Broadcasts settings to workers that do not run the loop, or ran it with other values."""
        group = self._membership.group
        if group.size > 1 and (whole or new_pass or 0 in self._shares):
            takes = new_pass or not self._shares[group.rank]
            self._replicas.broadcast_settings(group, source=self._source, takes=takes, whole=whole)
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
            self._measure(self._dry_run)
        if self._complete_or_stopped:
            return
        if self._membership.leads:
            self._reporter.record_iteration(self._membership.generation, self._gradients)
        # While a worker is catching up it has no parameters to compare yet.
        if not verdict.learning:
            self._synchronize_replicas()
        # Before the switch, in which workers with the state may leave.
        if verdict.save or verdict.leave:
            self._save(leave=verdict.leave)
        if verdict.switch:
            self._gradients.release()
            self._membership.switch(since_s)
            self._forget_old_split()
        elif verdict.again:
            self._membership.restart_transfer()

    def _synchronize_replicas(self) -> None:
        """Broadcasts what the script may have changed in its loop. Raises GroupBroken."""
        group, some_idle = self._membership.group, 0 in self._shares
        if some_idle:
            self._broadcast_settings(whole=True)
        self._replicas.synchronize(
            group,
            source=self._source,
            leads=self._membership.leads,
            some_idle=some_idle,
            pass_ended=self._progress.samples % self._order.per_epoch == 0,
        )
        if some_idle:
            self._membership.mark_whole()

    def _recover(self, broken: GroupBroken) -> None:
        """Rolls back the current iteration; the workers that are left repeat it."""
        since_s = time.monotonic()
        self._membership.give_up_generation(broken)
        # Before the next generation, which sends this state to workers that lack it.
        self._gradients.roll_back()
        try:
            self._membership.enter_next(since_s)
        except LeavingJob:
            self._save_alone()
            raise
        self._forget_old_split()

    def _forget_old_split(self) -> None:
        """Drops what depends on how the former generation split the batches."""
        self._loader.forget()
        self._timer.forget()
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

    def _apply_memory_bound(self) -> None:
        """Applies the newest memory limit: other jobs may have come to the GPU."""
        order = self._mailbox.generations.ordered
        if order is not None:
            self._memory.bound(order.memory_bytes)

    def _save(self, *, leave: bool) -> None:
        """Saves; with `leave`, leaves once the file is safe. Raises GroupBroken, LeavingJob."""
        safe = not self._membership.leads or self._saving.save(at_once=leave)
        self._mailbox.handle(CheckpointDone(leave))
        # No worker leaves unless the checkpoint is on disk: else the job would have lost its state.
        if leave and self._membership.agree_all_well(safe):
            raise LeavingJob

    def _save_alone(self) -> None:
        """Saves the last complete step if this worker is to leave: maybe nobody else has it.

        Its node may have lost the controller, and the others. Where they go on, it is left out.
        """
        if self._mailbox.generations.leave and self._membership.has_state:
            self._saving.save_unless_there()

    # The beginning and the end.

    def _prepare_dry_run(self, environment: WorkerEnvironment) -> DryRun | None:
        if not environment.dry_run_steps:
            return None
        return DryRun(
            environment.dry_run_steps,
            environment.dry_run_file,
            batch_size=self._order.batch_size,
            at_least=min(self._parts.at_least, self._order.batch_size),
            model=type(self._parts.model).__name__,
        )

    def _connect(self, environment: WorkerEnvironment) -> None:
        """Connects to the agent, if there is one."""
        hide_secret()
        order = self._order
        self._agent: AgentConnection | None = None
        if environment.socket:
            if TrainingLoop._with_agent:
                raise RuntimeError("a submitted script can have only one Job: split the script")
            TrainingLoop._with_agent = True
            out_of_memory.watch()
            self._agent = AgentConnection(environment, self._mailbox)
        self._membership = Membership(
            WorkerContext(
                me=environment.number,
                send=self._send,
                mailbox=self._mailbox,
                server=RendezvousServer(environment.host),
                address=environment.host,
                stall_s=environment.stall_s,
            ),
            self._parts,
            self._progress,
            batch_size=order.batch_size,
            script=hash_values(order.identity(), order.batch_size, order.total),
            begin=self._saving.first_state,
            enters=self._apply_memory_bound,
        )
        self._reporter = TrainingReports(
            self._send,
            self._progress,
            self._timer,
            self._memory,
            total=order.total,
            every_s=environment.report_s,
        )
        self._liveness = LivenessThread(self._mark_alive)
        # Last: the threads that start here call back into all of the above.
        if self._agent is None:
            self._mailbox.receive(Regroup(0, (0,)))
        else:
            self._liveness.start()
            self._agent.open(
                generation=lambda: self._membership.generation,
                first_messages=self._membership.first_messages,
            )

    def _send(self, message: FromWorker) -> None:
        """Sends a message to the agent; a script that was started by hand has none."""
        if self._agent is not None:
            self._agent.send(message)

    def _measure(self, dry_run: DryRun) -> None:
        dry_run.record_iteration(self._timer, self._memory)
        if self._progress.samples >= self._order.total:
            self._progress.samples = 0  # a small data set is read again
            self._reporter.restart()
        if dry_run.is_over:
            dry_run.report(sum(p.numel() for p in self._gradients.parameters), self.device)
            self._close()
            raise SystemExit(0)

    def _finish(self) -> None:
        if self._membership.leads:
            self._saving.save_the_end()
        self._membership.finish()
        self._close()
        if self._membership.is_catching_up:
            # It has half a model, which the rest of the script (a last evaluation) must not see.
            raise exit_process(0)

    def _mark_alive(self) -> None:
        """Records, on any thread, that the main thread is running."""
        self._membership.mark_alive()
        self._reporter.repeat_old_report()

    def _close(self) -> None:
        # The connection to the agent comes last: what ends before may still send messages.
        self._liveness.close()
        self._guard.end()
        self._saving.close()
        self._loader.close()
        self._membership.close()
        if self._agent is not None:
            self._agent.close(CLOSING_S)
