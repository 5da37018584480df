"""Gradients of all workers, weighted by samples and added up while the backward pass still runs.

The gradient of an iteration is the mean over its samples, whoever computed them:

    g = sum over workers and micro-batches of (n / N) * g_micro

with n the samples of a micro-batch and N those of the iteration. So each loss is scaled by n / N
before its backward pass, gradients are accumulated in flat buffers and the buffers are added up.
A buffer sets out as soon as the last micro-batch has filled it, in an order all workers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from dovetail.train.sync.buffers import Before, Buffers
from dovetail.train.sync.process_group import Broken, Group, Summing
from dovetail.train.sync.reduced_extras import Sums, Tail, running_statistics

BUCKET_BYTES = 8 << 20
"""Gradients that travel together: the first set out while the others are still computed."""


def trained_by(optimizer: torch.optim.Optimizer) -> set[nn.Parameter]:
    """Returns the parameters that an optimizer trains."""
    return {p for g in optimizer.param_groups for p in g["params"] if p.requires_grad}


@dataclass(slots=True)
class Bucket:
    """Parameters of one type and device whose gradients lie in one flat buffer."""

    flat: Tensor
    parameters: list[nn.Parameter]
    views: list[Tensor]
    missing: int = 0
    version: int = 0

    @property
    def numbers(self) -> Tensor:
        """Returns the buffer as numbers that can be added up on their way."""
        return torch.view_as_real(self.flat) if self.flat.is_complex() else self.flat

    def renew(self) -> None:
        """Takes another buffer."""
        self.flat = torch.zeros_like(self.flat)
        self.views = _views(self.flat, self.parameters)


def buckets_of(parameters: Iterable[nn.Parameter]) -> list[Bucket]:
    """Returns the buckets, last parameters first, as the backward pass meets them."""
    groups: list[list[nn.Parameter]] = []
    size_bytes = 0
    for p in reversed(list(parameters)):
        like = groups and (groups[-1][0].dtype, groups[-1][0].device) == (p.dtype, p.device)
        if not like or size_bytes >= BUCKET_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(p)
        size_bytes += p.numel() * p.element_size()
    return [_bucket(group) for group in groups]


def _views(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    ends = list(accumulate(p.numel() for p in parameters))
    return [flat[e - p.numel() : e].view(p.shape) for p, e in zip(parameters, ends, strict=True)]


def _bucket(parameters: list[nn.Parameter]) -> Bucket:
    first = parameters[0]
    flat = torch.zeros(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
    return Bucket(flat, parameters, _views(flat, parameters))


class Gradients:
    """The gradients of one model: accumulated, then added up over a group."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        trained = trained_by(optimizer)
        self.parameters = [p for p in model.parameters() if p in trained]
        if len(self.parameters) != len(trained) or not trained:
            raise ValueError(
                "the optimizer must train parameters of the model, and only those; a loss or a"
                " second model with parameters goes into one model (torch.nn.ModuleList)"
            )
        self._optimizer = optimizer
        self.device = self.parameters[0].device
        self._buckets = buckets_of(self.parameters)
        self._place = {p: i for i, p in enumerate(self.parameters)}
        count = len(self.parameters)
        self._buffers = Buffers(model, others=list(running_statistics(model)))
        self._tail = Tail(model, count + len(self._buffers), self.device)
        self._touched, self._arrived = [False] * count, [False] * count
        self._sent: list[Summing] = []
        self._group: Group | None = None
        self._computing = self._sending = self._added = False
        self._broken: Broken | None = None
        self._loss: Tensor | None = None
        self._weight = 0.0
        self._last: tuple[Tensor | float, float] = 0.0, 0.0
        self._weighted = self._by_weight = self._by_samples = False
        self._before = Before()
        for bucket in self._buckets:
            for p in bucket.parameters:
                p.register_post_accumulate_grad_hook(self._hook(bucket))  # type: ignore[no-untyped-call]

    def begin(self, group: Group) -> None:
        """Starts an iteration: nothing accumulated, nothing sent."""
        if not trained_by(self._optimizer) <= self._place.keys():
            raise RuntimeError(
                "the optimizer got parameters after the Job was made, or some were unfrozen: make"
                " the Job when all that will ever be trained is, and freeze parameters after that"
            )
        self._group, self._broken = group, None
        self._sent, self._sending, self._added = [], False, False
        count = len(self.parameters)
        self._touched, self._arrived = [False] * count, [False] * count
        self._loss, self._weight = None, 0.0
        self._weighted = self._by_weight = self._by_samples = False
        if group.size > 1:  # alone nothing breaks, and nobody needs to know which changed
            self._buffers.begin()
            self._before.remember([*self._tail.buffers, *self._buffers.at_risk()])
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.parameters)
        self._lay_aside()

    def _lay_aside(self) -> None:
        """Clears gradients as the script sees them: what it computes itself is not ours."""
        for p in self.parameters:
            p.grad = None

    def _hold(self) -> None:
        """Has the backward pass add to the buffers, and the step take from them."""
        for bucket in self._buckets:
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                if p.grad is not view:
                    p.grad = view

    def _look_for_others(self) -> None:
        """Raises RuntimeError if the script computed gradients itself, and means them to count."""
        found = [p.grad for p in self.parameters if p.grad is not None]
        if any(g.layout != torch.strided or bool((g != 0).any()) for g in found):
            raise RuntimeError(
                "the loop calls backward() itself too, on this worker's samples alone: add the"
                " losses up for job.backward(loss), or clear those gradients before it, with"
                " optimizer.zero_grad()"
            )

    def _look_for_changes(self) -> None:
        """Raises RuntimeError if the script changed gradients that are not complete yet."""
        if self._added and any(
            b.flat._version != b.version
            or any(
                p.grad is not None and p.grad is not view
                for p, view in zip(b.parameters, b.views, strict=True)
            )
            for b in self._buckets
        ):
            raise RuntimeError(
                "gradients were changed between job.backward() and job.step(), where they are this"
                " worker's only: clip by Job(clip_norm=...), leave unscaling to Job(scaler=...),"
                " and do anything else in optimizer.register_step_pre_hook"
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

        With a `weight` of the user's (tokens, say) the loss counts by that instead.
        """
        self._look_for_others()
        self._hold()
        share: float | Tensor = part
        if weight is None:
            self._by_samples = True
        else:
            self._weighted, share, part = True, weight, float(weight)
            if part == 0:  # the mean over nothing is no number
                return
            self._by_weight = True
        scaled = loss * share
        found = scaled.detach().double()
        self._loss = found if self._loss is None else self._loss + found
        self._weight += part
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
        """Leaves the buffers as they are until the next backward pass, whatever is cleared."""
        self._look_for_changes()
        self._lay_aside()

    def finish(self, part: float, *, first: bool, end: bool) -> bool:
        """Returns when the gradients are those of all workers. Raises Broken.

        `first` is the first worker with samples, `end` whether this one wants training to end
        without this step; returns whether any does.
        """
        assert self._group is not None
        self._look_for_changes()
        self._hold()
        sums = self._own(end) if self._group.size == 1 else self._all(part, first, end)
        if sums.ended:
            return True
        if sums.by_weight and sums.by_samples:
            raise RuntimeError(
                "job.backward() was given a weight for some batches of an iteration and none for"
                " others, which count by their samples: give one for all of them"
            )
        if sums.weighted:
            for bucket in self._buckets:
                bucket.flat.div_(sums.weight or 1.0)
        if sums.weight:
            self._last = sums.loss, sums.weight
        self._forget_untouched(sums.touched)
        return False

    def _own(self, end: bool) -> Sums:
        """Returns the sums of a worker that is alone.

        NOTE: the device is asked for nothing: that would wait until all its kernels are done.
        """
        self._buffers.lie_where_they_lay()
        loss = 0.0 if self._loss is None else self._loss
        return Sums(loss, self._weight, *self._flags(end), self._touched)

    def _flags(self, end: bool) -> tuple[bool, bool, bool, bool]:
        return self._weighted, self._by_weight, self._by_samples, end

    def _all(self, part: float, first: bool, end: bool) -> Sums:
        """Returns the sums of all workers, when their gradients are added up too. Raises Broken."""
        assert self._group is not None
        self._send_all()
        flags = [*self._flags(end), *self._touched, *self._buffers.changed()]
        self._tail.fill(self._loss, self._weight, flags, part=part, first=first)
        self._sent.append(self._group.sum_gradients(self._tail.flat))
        for sent in self._sent:
            sent.wait()
        sums, changed = self._tail.sums(len(self.parameters))
        if not sums.ended:
            self._tail.restore()
            self._buffers.take_changes(self._group, changed, first)
        return sums

    def level_buffers(self, group: Group, first: bool) -> None:
        """Gives all workers the buffers of the first that were ever seen to change."""
        self._buffers.level(group, first)

    def release(self) -> None:
        """Lets go of what was sent: it would keep the connections of the group open."""
        self._sent, self._group = [], None

    def made(self) -> None:
        """Takes note that the step was made: nothing of this iteration is taken back any more."""
        self._before.forget()

    def take_back(self) -> None:
        """Undoes an iteration whose group was given up before the step. Raises Stuck.

        What was sent may still be written to, in the next iteration even; an operation that does
        not end keeps its gradients, and we take others.
        """
        self._buffers.lie_where_they_lay()
        self._before.restore()
        if not all(sent.lets_go() for sent in self._sent):
            self._tail.renew()
            for bucket in self._buckets:
                bucket.renew()
        self.release()

    def loss(self) -> float | None:
        """Returns the mean loss over the samples of the last iteration; None before the first."""
        loss, weight = self._last
        return float(loss) / weight if weight else None

    def _forget_untouched(self, touched: Sequence[bool]) -> None:
        """Leaves parameters alone that no worker used, as an ordinary loop would."""
        for p, used in zip(self.parameters, touched, strict=False):
            if not used:
                p.grad = None

    def _hook(self, bucket: Bucket) -> Callable[[Tensor], None]:
        def filled(parameter: Tensor) -> None:
            if not self._computing:
                return  # the script's own backward pass
            place = self._place[parameter]  # type: ignore[index]
            self._touched[place] = True
            if self._sending:
                if self._arrived[place]:
                    raise RuntimeError(
                        "a gradient comes in several parts: layers used twice must be checkpointed"
                        " with use_reentrant=False"
                    )
                self._arrived[place] = True
                bucket.missing -= 1
                self._send_filled()

        return filled

    def _send_filled(self) -> None:
        while len(self._sent) < len(self._buckets) and self._broken is None:
            bucket = self._buckets[len(self._sent)]
            if bucket.missing > 0:
                return
            self._send(bucket)

    def _send_all(self) -> None:
        for bucket in self._buckets[len(self._sent) :]:
            self._send(bucket)
        if self._broken is not None:
            raise self._broken

    def _send(self, bucket: Bucket) -> None:
        assert self._group is not None
        try:
            self._sent.append(self._group.sum_gradients(bucket.numbers))
        except Broken as broken:  # inside the backward pass: told when it is over
            self._broken = broken
