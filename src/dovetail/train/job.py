"""A training job as its script sees it: a plain loop that becomes elastic.

    job = dovetail.train.Job(model, optimizer, data=dataset, batch_size=64, epochs=5)
    for images, labels in job.batches():
        loss = cross_entropy(model(images), labels)
        job.backward(loss)
        job.step()

Started by hand, this is a plain loop in one process. Started by an agent, it is one worker of
many: the batches are this worker's part, `backward` weights the loss by it and sums the gradients
of all workers, and `step` is where workers join and leave.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from dovetail.train.data.loader import Batch, Collate, SampleReader, mix_seeds, seed_all
from dovetail.train.data.source import DataSource
from dovetail.train.guards import check_arguments, is_sum
from dovetail.train.iterations import BACKWARD, IN_CALL, NOTHING, STEP, Step, TrainingLoop
from dovetail.train.membership.membership import IterationOutcome
from dovetail.train.process.environment import WorkerEnvironment, warn
from dovetail.train.state.state import Stateful, TrainingState


class Job(TrainingLoop):
    """A model in training. Pass what the plain loop used: model, optimizer and data."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        data: object,
        batch_size: int | None = None,
        epochs: int = 1,
        steps: int | None = None,
        micro_batch: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        loaders: int = 0,
        collate: Collate | None = None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        schedule: str = "step",
        scaler: torch.amp.GradScaler | None = None,
        clip_norm: float | None = None,
        keep: Mapping[str, Stateful] | None = None,
        folder: str | Path | None = None,
        checkpoint_s: float = 600.0,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Raises ValueError for arguments that do not fit together.

        `data` is a map-style data set, a tuple of tensors, or a DataLoader, which specifies how to
        read it. `batch_size` counts the samples of an iteration over all workers. With `steps`,
        training ends after that many iterations and `epochs` is ignored. The `scheduler` is stepped
        after each iteration or pass (`schedule`). Objects in `keep` are saved too. Checkpoints are
        written to `folder` (by default the job's own) every `checkpoint_s` seconds.
        """
        check_arguments(model, optimizer, scheduler, schedule, keep or {})
        source = DataSource(data, batch_size, shuffle, drop_last, loaders, collate).resolve(seed)
        reader = SampleReader(source.data, seed=seed, collate=source.collate)
        order = source.order(len(reader), seed=seed, epochs=epochs, steps=steps)
        device = next(model.parameters()).device
        if scaler is not None:
            # A scaler has no factor before its first loss, and a joining worker steps before that.
            scaler.scale(torch.zeros((), device=device))
        others: dict[str, Stateful | None] = {"scheduler": scheduler, "scaler": scaler}
        super().__init__(
            TrainingState.of(model, optimizer, others, keep or {}),
            order,
            Step(scheduler, schedule, scaler, clip_norm, micro_batch),
            WorkerEnvironment.of(environment),
            loader=source.loader(reader, device),  # forks, so before any thread starts
            folder=Path(folder) if folder else None,
            checkpoint_s=checkpoint_s,
            data=source.fingerprint(),
        )
        self._joined = self._begun = self._by_pass = self._broken_off = self._looked_at_loss = False

    # Properties. Reading one enters the first generation, since the answer may come from others.

    @property
    def first(self) -> bool:
        """Returns whether this is the one worker that prints and saves for all.

        This may change when workers join and leave.
        """
        self._take_part()
        return self._membership.leads

    @property
    def steps_done(self) -> int:
        """Returns the iterations done so far, by all workers over time."""
        self._take_part()
        return self._progress.step

    @property
    def samples_done(self) -> int:
        """Returns the samples used so far, over all passes."""
        self._take_part()
        return self._progress.samples

    @property
    def epoch(self) -> int:
        """Returns the current pass over the data, from 0."""
        self._take_part()
        return self._pass

    @property
    def loss(self) -> float:
        """Returns the mean loss over the samples of the last iteration; NaN before the first."""
        self._take_part()
        loss = self._loss()
        return math.nan if loss is None else loss

    def digest(self) -> str:
        """Returns a checksum of model and optimizer, equal if they are bit-identical."""
        self._take_part()
        return self._parts.digest()

    # What a script calls.

    def batches(self) -> Iterator[Batch]:
        """Yields this worker's micro-batches, on the device, until training is complete.

        Inside `epochs`, yields those of one pass. Each must be followed by `backward` and `step`.
        Ends the process if the job continues without this worker.
        """
        if self._by_pass:
            return self._of_a_pass()
        self._begin_loop("batches")
        return self._of_all_passes()

    def epochs(self) -> Iterator[int]:
        """Yields the number of each remaining pass; iterate over `batches` once in each.

        Code after that inner loop runs after each pass, on all workers. If training is interrupted
        before it has run, it runs when training resumes.
        """
        self._begin_loop("epochs")
        self._by_pass = True
        return self._passes()

    def backward(self, loss: Tensor, weight: float | Tensor | None = None) -> None:
        """Adds the gradient of a micro-batch's mean loss, in place of `loss.backward()`.

        The loss is weighted by the samples of the micro-batch, or by `weight`: what the loss is a
        mean over, such as the number of tokens that are not padding.
        """
        if self._due != BACKWARD:
            raise RuntimeError(
                "call job.backward(loss) once for each batch of job.batches(): add several losses"
                " up before"
            )
        self._due = IN_CALL
        self._membership.mark_alive()
        if weight is None and not self._looked_at_loss:
            self._look_at_loss(loss)
        self._gradients.backward(
            loss,
            part=len(self._mine[0]) / len(self._batch),
            weight=weight,
            scale=self._update.scaled,
            last=len(self._mine) == 1,
        )
        self._due = STEP

    def step(self) -> bool:
        """Ends a micro-batch; after the last one, all workers step together.

        Replaces `optimizer.step()`, `optimizer.zero_grad()` and `scheduler.step()`. Returns whether
        the optimizer was stepped, which only the last micro-batch does.
        """
        if self._due != STEP:
            raise RuntimeError("call job.step() once, after job.backward(loss)")
        self._due = IN_CALL
        if len(self._mine) > 1:
            self._gradients.end_micro_batch()
        else:
            self._complete()
        del self._mine[0]
        self._due = NOTHING
        if self._mine:
            return False
        return isinstance(self._outcome, IterationOutcome) and not self._stopped

    def stop(self) -> None:
        """Ends training early on all workers, after the current iteration."""
        self._stopping = True

    def _look_at_loss(self, loss: Tensor) -> None:
        """Warns, once, of a loss that looks like a sum."""
        samples = len(self._mine[0])
        self._looked_at_loss = samples > 1
        if self._looked_at_loss and self._membership.leads and is_sum(loss, samples):
            warn(
                "the loss looks like a sum over samples: its gradient depends on how batches are"
                " split among workers; pass the mean to job.backward()"
            )

    # The loops.

    def _begin_loop(self, name: str) -> None:
        if self._begun:
            raise RuntimeError(f"job.{name}() covers all of the training: go through it once")
        self._begun = True
        self._guard.begin()

    def _of_all_passes(self) -> Iterator[Batch]:
        self._join()
        try:
            while not self._complete_or_stopped:
                yield from self._iteration()
        except GeneratorExit:
            # A `break`, or an error in the script: only code after the loop can tell which, and
            # ends training for all workers at its first look at the job.
            self._broken_off = True
            raise
        self._finish()

    def _of_a_pass(self) -> Iterator[Batch]:
        p, per_epoch = self._progress, self._order.per_epoch
        while not self._complete_or_stopped:
            self._find_pass()
            if p.samples >= (p.passes + 1) * per_epoch and not self._membership.is_catching_up:
                break
            yield from self._iteration()
        self._seed_outside(self._progress.samples)

    def _seed_outside(self, at: int) -> None:
        """Makes random numbers of the script before and after a pass equal on all workers."""
        seed_all(mix_seeds(self._order.seed, at, -1))

    def _find_pass(self) -> None:
        """Counts the passes that other workers ended while this one was catching up.

        At the end of a pass, the code after it may still have to run; in the middle it has run.
        """
        p = self._progress
        if not self._complete_or_stopped:
            ended, inside = divmod(p.samples, self._order.per_epoch)
            p.passes = ended if inside else max(p.passes, ended - 1)

    def _passes(self) -> Iterator[int]:
        self._join()
        p, per_epoch = self._progress, self._order.per_epoch
        try:
            while True:
                # Without the whole state the script must not see the model: no pass begins.
                while self._membership.is_catching_up and not self._complete_or_stopped:
                    self._work_without_samples()
                self._find_pass()
                if self._stopped or p.passes * per_epoch >= self._order.total:
                    break
                self._seed_outside(p.passes)
                yield p.passes
                if not self._complete_or_stopped and p.samples < (p.passes + 1) * per_epoch:
                    raise RuntimeError(
                        "go through all of job.batches() in each pass of job.epochs(): to end"
                        " training early, call job.stop()"
                    )
                p.passes = max(p.passes + 1, p.samples // per_epoch)
        except GeneratorExit:
            self._broken_off = True
            raise
        self._finish()

    def _take_part(self) -> None:
        """Joins the other workers, unless done; ends training for all after a `break`."""
        # Not while an error is under way: a script that fails must not count as finished.
        if not self._joined:
            self._join()
        elif self._broken_off and sys.exc_info()[1] is None:
            self._end_for_all()

    def _join(self) -> None:
        if self._joined or self._dry_run is not None:
            return
        self._joined = True
        with self._exits():
            self._membership.enter_next(time.monotonic())

    def _end_for_all(self) -> None:
        """Ends training on all workers without the current iteration."""
        self._broken_off, self._stopping, self._due = False, True, NOTHING
        # The others are in the middle of this iteration. Without this worker's part of the sums,
        # they would take it for one that hangs.
        if self._under_way:
            self._mine, self._ends = [], True
            if self._outcome is None:
                self._complete()
            self._conclude()
        while not self._complete_or_stopped:
            self._work_without_samples()
        self._finish()

    def _work_without_samples(self) -> None:
        for _ in self._iteration():
            raise AssertionError("a worker that is catching up or ending got samples")
