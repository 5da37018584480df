"""Gradients of all workers, weighted by samples and added up while the backward pass still runs.

The gradient of an iteration is the mean over its samples, whoever computed them:

    g = sum over workers and micro-batches of (n / N) * g_micro

with n the samples of a micro-batch and N those of the iteration. So each loss is scaled by n / N
before its backward pass, gradients are accumulated in flat buffers and the buffers are added up.
A buffer sets out as soon as the last micro-batch has filled it, in an order all workers share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from dovetail.train.group import Broken, Group, Waiting

BUCKET_BYTES = 8 << 20
"""Gradients that travel together: the first set out while the others are still computed."""
HEAD = 3
"""Of the tail: loss, weight, whether weights are the user's."""


@dataclass(slots=True)
class Bucket:
    """Parameters of one type and device whose gradients lie in one flat buffer."""

    flat: Tensor
    parameters: list[nn.Parameter]
    views: list[Tensor]
    missing: int = 0


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


def _bucket(parameters: list[nn.Parameter]) -> Bucket:
    first = parameters[0]
    flat = torch.zeros(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
    views, begin = [], 0
    for p in parameters:
        views.append(flat[begin : begin + p.numel()].view(p.shape))
        begin += p.numel()
    return Bucket(flat, parameters, views)


class Tail:
    """What travels beside the gradients: loss, weight, running statistics, who had a gradient.

    Statistics of batch normalization differ between workers; their weighted mean replaces them, so
    that all workers stay alike and any may leave.
    """

    def __init__(self, model: nn.Module, parameters: int, device: torch.device) -> None:
        self._statistics = [
            b
            for m in model.modules()
            if isinstance(m, _NormBase)
            for b in (m.running_mean, m.running_var)
            if b is not None
        ]
        self._parameters = parameters
        length = HEAD + parameters + sum(b.numel() for b in self._statistics)
        self.flat = torch.zeros(length, dtype=torch.float32, device=device)

    def fill(
        self, loss: Tensor, weight: Tensor, part: float, *, weighted: bool, touched: list[bool]
    ) -> None:
        """Writes what this worker adds; `part` is its part of the iteration's samples."""
        begin = HEAD + self._parameters
        self.flat[0], self.flat[1] = loss, weight
        self.flat[2:begin] = torch.tensor([weighted, *touched], dtype=torch.float32)
        for b in self._statistics:
            self.flat[begin : begin + b.numel()] = b.detach().flatten() * part
            begin += b.numel()

    def restore(self) -> None:
        """Gives the statistics of all workers to this one."""
        begin = HEAD + self._parameters
        for b in self._statistics:
            b.copy_(self.flat[begin : begin + b.numel()].view(b.shape))
            begin += b.numel()

    def touched(self) -> list[bool]:
        """Returns which parameters had a gradient on any worker."""
        return [t > 0 for t in self.flat[HEAD : HEAD + self._parameters].tolist()]

    def weighted(self) -> bool:
        """Returns whether a worker counted by a weight of the user's."""
        return self.flat[2].item() > 0


class Gradients:
    """The gradients of one model: accumulated, then added up over a group."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        trained = {p for g in optimizer.param_groups for p in g["params"] if p.requires_grad}
        self.parameters = [p for p in model.parameters() if p in trained]
        if len(self.parameters) != len(trained) or not trained:
            raise ValueError("the optimizer must train parameters of the model, and only those")
        self.device = self.parameters[0].device
        self._buckets = buckets_of(self.parameters)
        self._place = {p: i for i, p in enumerate(self.parameters)}
        self._tail = Tail(model, len(self.parameters), self.device)
        self._touched = [False] * len(self.parameters)
        self._sent: list[Waiting] = []
        self._group: Group | None = None
        self._sending = False
        self._broken: Broken | None = None
        self._loss = torch.zeros((), device=self.device)
        self._weight = torch.zeros((), device=self.device)
        self._weighted = False
        for bucket in self._buckets:
            for p in bucket.parameters:
                p.register_post_accumulate_grad_hook(self._hook(bucket))  # type: ignore[no-untyped-call]

    def begin(self, group: Group) -> None:
        """Starts an iteration: nothing accumulated, nothing sent."""
        self._group, self._broken = group, None
        self._sent, self._sending = [], False
        self._touched = [False] * len(self.parameters)
        self._loss.zero_()
        self._weight.zero_()
        self._weighted = False
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.parameters)
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                p.grad = view

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
        share: float | Tensor = part
        if weight is not None:
            self._weighted, share = True, weight
        scaled = loss * share
        with torch.no_grad():
            self._loss += scaled.detach()
            self._weight += share
        self._sending = last
        scale(scaled).backward()  # type: ignore[no-untyped-call]

    def finish(self, part: float) -> None:
        """Returns when the gradients are those of all workers. Raises Broken."""
        assert self._group is not None
        self._send_all()
        self._tail.fill(
            self._loss, self._weight, part, weighted=self._weighted, touched=self._touched
        )
        self._sent.append(self._group.sum_gradients(self._tail.flat))
        for sent in self._sent:
            sent.wait()
        self._tail.restore()
        if self._tail.weighted():
            for bucket in self._buckets:
                bucket.flat.div_(self._tail.flat[1].to(bucket.flat.dtype))
        if not all(self._touched):
            self._forget_untouched()

    def release(self) -> None:
        """Lets go of what was sent: it would keep the connections of the group open."""
        self._sent, self._group = [], None

    def loss(self) -> float:
        """Returns the mean loss over the samples of the last iteration."""
        loss, weight = self._tail.flat[:2].tolist()
        return loss / weight if weight else float("nan")

    def _forget_untouched(self) -> None:
        """Leaves parameters alone that no worker used, as an ordinary loop would."""
        for p, touched in zip(self.parameters, self._tail.touched(), strict=True):
            if not touched:
                p.grad = None

    def _hook(self, bucket: Bucket) -> Callable[[Tensor], None]:
        def filled(parameter: Tensor) -> None:
            self._touched[self._place[parameter]] = True  # type: ignore[index]
            if self._sending:
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
            self._sent.append(self._group.sum_gradients(bucket.flat))
        except Broken as broken:  # inside the backward pass: told when it is over
            self._broken = broken
