"""Sums the gradients of all workers, weighted by samples, while the backward pass still runs.

The gradient of an iteration is the mean over its samples, whichever worker computed them:

    g = sum over workers and micro-batches of (n / N) * g_micro

with n the samples of a micro-batch and N those of the iteration. Each loss is therefore scaled by
n / N before its backward pass, gradients accumulate in flat buckets, and the buckets are summed.
The sum of a bucket starts as soon as the last micro-batch has filled it, in the same order on all
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from dovetail.train.sync.buffers import BufferBackup, ModelBuffers
from dovetail.train.sync.process_group import GroupBroken, SumOperation, WorkerGroup
from dovetail.train.sync.reduced_extras import IterationSums, ReducedExtras, running_statistics

BUCKET_BYTES = 8 << 20
"""Gradients that are summed together: the first bucket is sent while others are still computed."""


def trained_parameters(optimizer: torch.optim.Optimizer) -> set[nn.Parameter]:
    """Returns the parameters of an optimizer that require gradients."""
    return {p for g in optimizer.param_groups for p in g["params"] if p.requires_grad}


class GradientBucket:
    """Parameters of one data type and device whose gradients share a flat buffer."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.missing = self.version = 0
        self.renew()

    @property
    def numbers(self) -> Tensor:
        """Returns the buffer as real numbers: complex tensors cannot be summed by every backend."""
        return torch.view_as_real(self.flat) if self.flat.is_complex() else self.flat

    def renew(self) -> None:
        """Allocates a new buffer."""
        first, ends = self.parameters[0], list(accumulate(p.numel() for p in self.parameters))
        self.flat = torch.zeros(ends[-1], dtype=first.dtype, device=first.device)
        self.views = [
            self.flat[end - p.numel() : end].view(p.shape)
            for p, end in zip(self.parameters, ends, strict=True)
        ]


def buckets_of(parameters: Iterable[nn.Parameter]) -> list[GradientBucket]:
    """Returns the buckets, last parameters first, as the backward pass fills them."""
    groups: list[list[nn.Parameter]] = []
    size_bytes = 0
    for p in reversed(list(parameters)):
        like = groups and (groups[-1][0].dtype, groups[-1][0].device) == (p.dtype, p.device)
        # A flat buffer has one data type and one device, so a change of either opens a bucket.
        if not like or size_bytes >= BUCKET_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(p)
        size_bytes += p.numel() * p.element_size()
    return [GradientBucket(group) for group in groups]


class Gradients:
    """The gradients of one model: accumulated on this worker, then summed over a group."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        trained = trained_parameters(optimizer)
        self.parameters = [p for p in model.parameters() if p in trained]
        if len(self.parameters) != len(trained) or not trained:
            raise ValueError(
                "the optimizer must train parameters of the model, and no others: combine a loss or"
                " a second model that has parameters with the model in one torch.nn.ModuleList"
            )
        self._optimizer = optimizer
        self.device = self.parameters[0].device
        self._buckets = buckets_of(self.parameters)
        self._place = {p: i for i, p in enumerate(self.parameters)}
        count = len(self.parameters)
        self._buffers = ModelBuffers(model, others=list(running_statistics(model)))
        self._extras = ReducedExtras(model, count + len(self._buffers), self.device)
        self._touched, self._arrived = [False] * count, [False] * count
        self._operations: list[SumOperation] = []
        self._group: WorkerGroup | None = None
        self._computing = self._sending = self._added = False
        self._broken: GroupBroken | None = None
        self._loss: Tensor | None = None
        self._weight = 0.0
        self._last: tuple[Tensor | float, float] = 0.0, 0.0
        self._weighted = self._by_weight = self._by_samples = False
        self._backup = BufferBackup()
        for bucket in self._buckets:
            for p in bucket.parameters:
                p.register_post_accumulate_grad_hook(self._hook(bucket))  # type: ignore[no-untyped-call]

    def begin(self, group: WorkerGroup) -> None:
        """Starts an iteration with empty buckets. Raises RuntimeError for new parameters."""
        if not trained_parameters(self._optimizer) <= self._place.keys():
            raise RuntimeError(
                "parameters were added to the optimizer, or unfrozen, after the Job was created:"
                " create the Job with all parameters that are ever trained, then freeze some"
            )
        self._group, self._broken = group, None
        self._operations, self._sending, self._added = [], False, False
        count = len(self.parameters)
        self._touched, self._arrived = [False] * count, [False] * count
        self._loss, self._weight = None, 0.0
        self._weighted = self._by_weight = self._by_samples = False
        # A group of one cannot break, so nothing is ever rolled back.
        if group.size > 1:
            self._buffers.begin()
            self._backup.remember([*self._extras.buffers, *self._buffers.at_risk()])
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.parameters)
        self._clear_grad()

    def _clear_grad(self) -> None:
        """Clears `grad`, so that gradients the script computes itself stay out of the buckets."""
        for p in self.parameters:
            p.grad = None

    def _attach_buckets(self) -> None:
        """Points `grad` into the buckets, for the backward pass and the optimizer's step."""
        for bucket in self._buckets:
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                if p.grad is not view:
                    p.grad = view

    def _check_no_own_gradients(self) -> None:
        """Raises RuntimeError if the script called `backward()` itself."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if any(g.layout != torch.strided or bool((g != 0).any()) for g in gradients):
            raise RuntimeError(
                "the loop calls backward() itself, which sees only this worker's samples: pass the"
                " sum of the losses to job.backward(loss), or clear those gradients before, with"
                " optimizer.zero_grad()"
            )

    def _check_unchanged(self) -> None:
        """Raises RuntimeError if the script changed gradients that are not summed yet."""
        if self._added and any(
            b.flat._version != b.version
            or any(
                p.grad is not None and p.grad is not view
                for p, view in zip(b.parameters, b.views, strict=True)
            )
            for b in self._buckets
        ):
            raise RuntimeError(
                "gradients were changed between job.backward() and job.step(), before they are"
                " summed over all workers: clip with Job(clip_norm=...), unscale with"
                " Job(scaler=...), and do anything else in optimizer.register_step_pre_hook"
            )

    def backward(
        self,
        loss: Tensor,
        *,
        part: float,
        weight: float | Tensor | None,
        scale: Callable[[Tensor], Tensor],
        last: bool,
    ) -> None:
        """Adds the gradient of a micro-batch, `part` of the iteration's samples.

        With a `weight` (a number of tokens, for example) the loss counts by that instead.
        """
        # In this order: attached buckets hold the gradients of earlier micro-batches, which would
        # look like gradients of the script.
        self._check_no_own_gradients()
        self._attach_buckets()
        share: float | Tensor = part
        if weight is None:
            self._by_samples = True
        else:
            self._weighted, share, part = True, weight, float(weight)
            if part == 0:  # the mean over no elements is NaN
                return
            self._by_weight = True
        scaled = loss * share
        # Summed in float64 on the device: reading the value here would wait for the GPU.
        loss64 = scaled.detach().double()
        self._loss = loss64 if self._loss is None else self._loss + loss64
        self._weight += part
        # Only the last micro-batch completes a bucket; earlier ones just accumulate.
        self._sending = last
        self._computing = True
        try:
            scale(scaled).backward()  # type: ignore[no-untyped-call]
        finally:
            self._computing = False
        self._added = True
        for bucket in self._buckets:
            bucket.version = bucket.flat._version

    def end_micro_batch(self) -> None:
        """Protects the buckets from the script until the next backward pass."""
        self._check_unchanged()
        self._clear_grad()

    def finish(self, part: float, *, first: bool, end: bool) -> bool:
        """Waits until the gradients are summed over all workers. Raises GroupBroken.

        `first` marks the first worker with samples. `end` asks to end training without this step;
        returns whether any worker asked for that.
        """
        assert self._group is not None
        self._check_unchanged()
        # The script may have cleared `grad` with zero_grad(); the step must read the buckets.
        self._attach_buckets()
        sums = (
            self._sums_of_one(end) if self._group.size == 1 else self._sums_of_all(part, first, end)
        )
        if sums.ended:
            return True
        if sums.by_weight and sums.by_samples:
            raise RuntimeError(
                "job.backward() got a weight for some batches of an iteration and none for others:"
                " pass a weight for all of them, or for none"
            )
        if sums.weighted:
            for bucket in self._buckets:
                # Weights are known only now that all workers have reported theirs, so the division
                # comes last.
                bucket.flat.div_(sums.weight or 1.0)
        if sums.weight:
            self._last = sums.loss, sums.weight
        self._forget_untouched(sums.touched)
        return False

    def _sums_of_one(self, end: bool) -> IterationSums:
        """Returns the sums of a group of one.

        NOTE: no value is read from the device, which would wait for all its kernels.
        """
        self._buffers.restore_originals()
        loss = 0.0 if self._loss is None else self._loss
        return IterationSums(loss, self._weight, *self._flags(end), self._touched)

    def _flags(self, end: bool) -> tuple[bool, bool, bool, bool]:
        return self._weighted, self._by_weight, self._by_samples, end

    def _sums_of_all(self, part: float, first: bool, end: bool) -> IterationSums:
        """Returns the sums of all workers once all gradients are summed too. Raises GroupBroken."""
        assert self._group is not None
        # Also buckets that are not filled: a parameter may have no gradient here but one on another
        # worker, which waits for this one in the same sum.
        self._send_all()
        flags = [*self._flags(end), *self._touched, *self._buffers.changed()]
        self._extras.fill(self._loss, self._weight, flags, part=part, first=first)
        # Loss, weight and flags go last, in one buffer: one operation instead of one for each.
        self._operations.append(self._group.sum_gradients(self._extras.flat))
        for operation in self._operations:
            operation.wait()
        sums, changed = self._extras.sums(len(self.parameters))
        # Statistics of an iteration that ends without a step must not enter the model.
        if not sums.ended:
            self._extras.restore()
            self._buffers.take_changes(self._group, changed, first)
        return sums

    def level_buffers(self, group: WorkerGroup, first: bool) -> None:
        """Broadcasts from the `first` worker every buffer that ever changed."""
        self._buffers.level(group, first)

    def release(self) -> None:
        """Drops references to operations: they would keep the connections of the group open."""
        self._operations, self._group = [], None

    def commit(self) -> None:
        """Records that the step was made: this iteration is not rolled back any more."""
        self._backup.forget()

    def roll_back(self) -> None:
        """Rolls back an iteration whose group broke before the step. Raises OperationStuck.

        Pending operations may still write to their buffers, even during the next iteration. If an
        operation does not end, its buffers are abandoned to it and new ones allocated.
        """
        # Replaced buffers first: the backup is copied into the original tensors.
        self._buffers.restore_originals()
        self._backup.restore()
        if not all(operation.wait_released() for operation in self._operations):
            self._extras.renew()
            for bucket in self._buckets:
                bucket.renew()
        self.release()

    def loss(self) -> float | None:
        """Returns the mean loss over the samples of the last iteration; None before the first."""
        loss, weight = self._last
        return float(loss) / weight if weight else None

    def _forget_untouched(self, touched: Sequence[bool]) -> None:
        """Clears the gradients of parameters that no worker used, as a plain loop would."""
        for p, used in zip(self.parameters, touched, strict=False):
            if not used:
                p.grad = None

    def _hook(self, bucket: GradientBucket) -> Callable[[Tensor], None]:
        def filled(parameter: Tensor) -> None:
            if not self._computing:
                return  # a backward pass of the script itself
            place = self._place[parameter]  # type: ignore[index]
            # Parameters without a gradient anywhere must keep `grad` None, or momentum would move
            # them.
            self._touched[place] = True
            if self._sending:
                # The bucket may be on its way already: adding to it now would corrupt the sum.
                if self._arrived[place]:
                    raise RuntimeError(
                        "a gradient was computed in several parts: checkpoint layers that are used"
                        " twice with use_reentrant=False"
                    )
                self._arrived[place] = True
                bucket.missing -= 1
                self._send_filled()

        return filled

    def _send_filled(self) -> None:
        while len(self._operations) < len(self._buckets) and self._broken is None:
            # Collectives must start in the same order on all workers: a bucket that is filled early
            # waits for those before it.
            bucket = self._buckets[len(self._operations)]
            if bucket.missing > 0:
                return
            self._send(bucket)

    def _send_all(self) -> None:
        for bucket in self._buckets[len(self._operations) :]:
            self._send(bucket)
        if self._broken is not None:
            raise self._broken

    def _send(self, bucket: GradientBucket) -> None:
        assert self._group is not None
        try:
            self._operations.append(self._group.sum_gradients(bucket.numbers))
        except GroupBroken as broken:  # raising inside autograd would abort the backward pass
            self._broken = broken
