"""A training job as its script sees it: an ordinary loop that becomes elastic.

    job = dovetail.train.Job(model, optimizer, data=dataset, batch_size=64, epochs=5)
    for images, labels in job.batches():
        loss = cross_entropy(model(images), labels)
        job.backward(loss)
        job.step()

Started by hand this is a plain loop in one process. Started by an agent it is one worker of many:
the batches are this worker's part, `backward` weighs the loss by it and adds the gradients of all
up, and `step` is where workers come and go.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dovetail.train.aside import leave
from dovetail.train.checkpoint import Progress, Writer, restore, snapshot
from dovetail.train.desk import Desk
from dovetail.train.dry_run import DryRun
from dovetail.train.gradients import Gradients
from dovetail.train.group import Broken
from dovetail.train.line import Agent, Line, Nobody
from dovetail.train.loader import Loader, Source, mixed, moved, seed_torch
from dovetail.train.meeting import Host
from dovetail.train.membership import Home, Leaving, Membership, Spoiled, Verdict
from dovetail.train.reporter import Reporter
from dovetail.train.samples import Indices, Order
from dovetail.train.stages import Stopwatch, bound_memory
from dovetail.train.state import Parts
from dovetail.train.surroundings import Surroundings, hide_secret
from dovetail.wire.worker import Finished, Regroup, Saved

CLOSING_S = 2.0
"""How long a worker that ends waits for an agent to hear its last words."""
SPOILED_EXIT = 4
"""The exit code of a worker that has nothing to go on from; a fresh one can begin anew."""
SCHEDULES = ("step", "epoch")


class Job:
    """A model in training. Give it what the loop of the script used: model, optimizer, data."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        data: Any,
        batch_size: int,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        loaders: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        schedule: str = "step",
        scaler: torch.amp.GradScaler | None = None,
        clip_norm: float | None = None,
        folder: str | Path | None = None,
        checkpoint_s: float = 600.0,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Raises ValueError for arguments that do not fit together.

        `batch_size` is that of an iteration of all workers together. `data` is a map-style data
        set or a tuple of tensors; `loaders` processes read it ahead. The `scheduler` is stepped
        after each iteration or pass (`schedule`). Checkpoints go to `folder` (by default the
        job's own) every `checkpoint_s` seconds; without a folder there are none.
        """
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule is one of {', '.join(SCHEDULES)}, not {schedule!r}")
        about = Surroundings.of(environment)
        source = Source(data, seed=seed, collate=collate)
        self._order = Order(len(source), epochs, batch_size, seed, shuffle, drop_last)
        self._optimizer, self._scheduler, self._schedule = optimizer, scheduler, schedule
        self._scaler, self._clip_norm = scaler, clip_norm
        self._gradients = Gradients(model, optimizer)
        self.device = self._gradients.device
        bound_memory(self.device, about.memory_bytes)
        self._loader = Loader(source, loaders)  # forks: before any thread is there
        others = {"scheduler": scheduler, "scaler": scaler}
        self._parts = Parts(model, optimizer, {k: v for k, v in others.items() if v is not None})
        self._progress = Progress()
        self._watch = Stopwatch(loaders)
        place = folder or about.folder
        self._folder = Path(place) if place and not about.dry_run_steps else None
        self._checkpoint_s = about.checkpoint_s or checkpoint_s
        self._saved_s = time.monotonic()
        self._begin_with_nothing()
        self._open(about)

    def _begin_with_nothing(self) -> None:
        self._batch: Indices = self._order.batch_at(0)
        self._mine: list[Indices] = []
        self._part = 0.0
        self._due = 0
        self._outcome: Verdict | Broken | None = None
        self._begun = self._stopping = self._over = False

    # What a script may ask.

    @property
    def first(self) -> bool:
        """Returns whether this is the one worker that prints and saves for all."""
        return self._membership.leads

    @property
    def steps_done(self) -> int:
        """Returns the iterations done, by whatever workers."""
        return self._progress.step

    @property
    def samples_done(self) -> int:
        """Returns the samples used, over all passes."""
        return self._progress.samples

    @property
    def epoch(self) -> int:
        """Returns the pass over the data, from 0."""
        return self._progress.samples // self._order.per_epoch

    @property
    def loss(self) -> float:
        """Returns the mean loss over all samples of the last iteration."""
        return self._gradients.loss()

    def digest(self) -> str:
        """Returns a checksum of model and optimizer, equal where they are bit by bit."""
        return self._parts.digest()

    # What a script calls.

    def batches(self) -> Iterator[Any]:
        """Yields this worker's micro-batches, on the device, until training is complete.

        Each must be followed by `backward` and `step`. Ends the process when the job goes on
        without this worker.
        """
        if self._begun:
            raise RuntimeError("job.batches() is all of the training: go through it once")
        self._begun = True
        try:
            if self._dry_run is None:
                self._membership.enter_next(time.monotonic())
            self._over = self._progress.samples >= self._order.total
            while not self._over:
                yield from self._iteration()
            self._finish()
        except Leaving:
            self._membership.leave()
            self._close()
            raise leave(0) from None
        except Spoiled:
            self._close()
            sys.stderr.write("dovetail: nobody is left with the state of the job\n")
            raise leave(SPOILED_EXIT) from None

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """Adds the gradient of a micro-batch's mean loss, in place of `loss.backward()`.

        The loss counts by the samples in the micro-batch, or by a `weight` of your own: that over
        which it is a mean, such as the number of tokens that are not padding.
        """
        if self._due != 1:
            raise RuntimeError("call job.backward(loss) once for each batch of job.batches()")
        self._due = 2
        self._membership.alive()
        self._gradients.backward(
            loss,
            part=len(self._mine[0]) / len(self._batch),
            weight=weight,
            scale=self._scaler.scale if self._scaler is not None else same,
            last=len(self._mine) == 1,
        )

    def step(self) -> None:
        """Ends a micro-batch; after the last, all workers step together.

        In place of `optimizer.step()`, `optimizer.zero_grad()` and `scheduler.step()`.
        """
        if self._due != 2:
            raise RuntimeError("call job.step() once, after job.backward(loss)")
        self._due = 0
        del self._mine[0]
        if not self._mine:
            self._complete()

    def stop(self) -> None:
        """Ends training early, on all workers, after the next iteration that is complete."""
        self._stopping = True

    # An iteration.

    def _iteration(self) -> Iterator[Any]:
        self._outcome = None
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
                raise RuntimeError("each batch needs job.backward(loss) and job.step()")
        try:
            if isinstance(self._outcome, Broken):
                raise self._outcome
            self._boundary(self._outcome)
        except Broken as broken:
            self._recover(broken)

    def _begin(self) -> None:
        members = self._membership
        self._watch.begin()
        if self._dry_run is not None:
            members.manner = self._dry_run.manner()
        self._batch = self._order.batch_at(self._progress.samples, members.manner.batch_size)
        self._mine = self._share(self._progress.samples)
        self._part = sum(map(len, self._mine)) / len(self._batch)
        self._gradients.begin(members.group)
        members.announce(save=self._save_is_due(), stop=self._stopping)

    def _share(self, position: int) -> list[Indices]:
        members = self._membership
        batch = self._order.batch_at(position, members.manner.batch_size)
        return members.manner.micro_batches(batch, members.group.rank, members.learning)

    def _load(self, indices: Indices) -> Any:
        with self._watch.input():
            read = self._loader.take(self.epoch, indices, self._upcoming)
        self._watch.read(read.storage_s, read.cpu_s)
        # Dropout and the like depend on where in the order of samples we are, and nothing else.
        seed_torch(mixed(self._order.seed, self._progress.samples, int(indices[0])))
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

    def _complete(self) -> None:
        """Makes the step that all workers make, or none."""
        members, p = self._membership, self._progress
        try:
            with self._watch.network():
                self._gradients.finish(self._part)
                verdict = members.agree()
                members.settle()
        except Broken as broken:
            self._outcome = broken
            return
        self._update()
        p.step += 1
        p.samples += len(self._batch)
        if self._scheduler is not None and (
            self._schedule == "step" or p.samples % self._order.per_epoch == 0
        ):
            self._scheduler.step()
        members.stepped(verdict)
        self._watch.end()
        self._outcome = verdict

    def _update(self) -> None:
        if self._scaler is not None:
            self._scaler.unscale_(self._optimizer)
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self._gradients.parameters, self._clip_norm)
        if self._scaler is not None:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()

    # Between two iterations.

    def _boundary(self, verdict: Verdict) -> None:
        """Does what was agreed on. Raises Broken, Leaving."""
        since_s = time.monotonic()
        if self._dry_run is not None:
            self._tried(self._dry_run)
        if self.first:
            self._reporter.iterated(self._membership.generation, self._gradients)
        if verdict.stop or self._progress.samples >= self._order.total:
            self._over = True
            return
        if verdict.save or verdict.leave:
            self._save(leave=verdict.leave)
        if verdict.switch:
            self._gradients.release()
            self._membership.switch(since_s)
            self._regrouped()

    def _recover(self, broken: Broken) -> None:
        """Gives up the iteration that is under way; it is done again by those who are left."""
        since_s = time.monotonic()
        self._gradients.release()
        self._membership.broke(broken)
        self._membership.enter_next(since_s)
        self._regrouped()

    def _regrouped(self) -> None:
        self._loader.forget()
        self._watch.forget()
        self._reporter.restart()
        self._over = self._progress.samples >= self._order.total

    def _save_is_due(self) -> bool:
        if self._folder is None or not self.first or self._writer.busy:
            return False
        return time.monotonic() - self._saved_s > self._checkpoint_s

    def _save(self, *, leave: bool) -> None:
        """Saves, and leaves when that was asked and the file is safe. Raises Broken, Leaving."""
        safe = True
        if self.first:
            self._saved_s = time.monotonic()
            safe = self._save_here(at_once=leave)
        self._desk.checkpoint_done(left=leave)
        if leave and self._membership.all_well(safe):
            raise Leaving

    def _save_here(self, *, at_once: bool) -> bool:
        if self._folder is None:
            warn("no checkpoint: the job has no folder")
            return False
        state = snapshot(self._parts, self._progress, self._identity_of_data())
        if not at_once:
            self._writer.begin(state)
            return True
        self._writer.wait()
        return self._writer.write(state)

    def _identity_of_data(self) -> dict[str, int]:
        order = self._order
        return {"seed": order.seed, "samples": order.per_epoch, "shuffled": int(order.shuffle)}

    def _first_state(self) -> Progress:
        """Returns where training begins: at the newest checkpoint, if there is one."""
        if self._folder is None:
            return Progress(known=True)
        found = restore(self._folder, self._parts, self._identity_of_data())
        return found or Progress(known=True)

    # The beginning and the end.

    def _open(self, about: Surroundings) -> None:
        """Gets in touch with the agent, if there is one."""
        hide_secret()
        identity, order = about.identity, self._order
        self._desk = desk = Desk()
        line = Line(identity, desk) if identity is not None else None
        self._agent: Agent = line or Nobody()
        self._dry_run: DryRun | None = None
        if about.dry_run_steps:
            self._dry_run = DryRun(
                about.dry_run_steps,
                about.dry_run_file,
                batch_size=order.batch_size,
                model=type(self._parts.model).__name__,
            )
        self._writer = Writer(
            self._folder or Path(),
            told=lambda step, samples: self._agent.say(Saved(step, samples)),
            failed=warn,
        )
        self._membership = Membership(
            Home(
                me=identity.number if identity else 0,
                agent=self._agent,
                desk=desk,
                host=Host(about.at),
                at=about.at,
                stall_s=about.stall_s,
            ),
            self._parts,
            self._progress,
            batch_size=order.batch_size,
            begin=self._first_state,
        )
        self._reporter = Reporter(
            self._agent,
            self._progress,
            self._watch,
            self.device,
            total=order.total,
            every_s=about.report_s,
        )
        if line is None:
            desk.hear(Regroup(0, (0,)))
        else:
            line.open(generation=lambda: self._membership.generation, again=self._membership.again)

    def _tried(self, dry_run: DryRun) -> None:
        dry_run.iterated(self._watch, self.device)
        if self._progress.samples >= self._order.total:
            self._progress.samples = 0  # few data are read again
        if dry_run.over:
            dry_run.report(sum(p.numel() for p in self._gradients.parameters), self.device)
            self._close()
            raise SystemExit(0)

    def _finish(self) -> None:
        if self.first and self._folder is not None:
            self._save_here(at_once=True)
        self._agent.say(Finished(self._progress.step, self._progress.samples))
        self._close()

    def _close(self) -> None:
        self._writer.wait()
        self._loader.close()
        self._membership.close()
        self._agent.close(CLOSING_S)


def same(loss: Tensor) -> Tensor:
    """Returns a loss as it is."""
    return loss


def warn(what: str) -> None:
    """Tells the user, in the job's own log."""
    sys.stderr.write(f"dovetail: {what}\n")
