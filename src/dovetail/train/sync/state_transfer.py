"""Sends the state of a job to joining workers while the other workers train.

Parameters change only in the optimizer's step. During an iteration a thread can therefore send
them slice by slice, straight from the live tensors, until the step is due. A joining worker takes
part in summing gradients from its first iteration on, with no samples of its own, and makes the
same steps. A slice that has arrived therefore stays correct, and once the last slice has arrived
the state is bit-identical to that of the senders. The training loop never stops for the time that
sending the whole model takes.

This is correct only if a slice contains everything that its update depends on: elements of a
parameter travel with the same elements of its optimizer state. If elements may depend on each
other (an optimizer that is not known to work element by element, or hooks of the user), the whole
state is sent before the first step, and that step waits. The same happens if tensors appear while
the state is sent (a parameter trained for the first time) or if the script changes the model
between two steps: what was sent is discarded and everything is sent again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from dovetail.train.process.background import submit
from dovetail.train.process.device import CopyStream
from dovetail.train.state.state import TrainingState
from dovetail.train.sync.process_group import WAIT_SLICE, GroupBroken, WaitPolicy, WorkerGroup

SLICE_BYTES = 4 << 20
TAG_HEAD, TAG_SLICE, TAG_SKELETON = 1, 2, 3
NO_MORE = -1
"""Sent instead of a slice number: no further slice before the next step."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A contiguous run of elements of one tensor; `begin` and `end` count elements."""

    tensor: int
    begin: int
    end: int


def slices_of(
    tensors: Sequence[Tensor], units: Sequence[Sequence[int]], slice_bytes: int = SLICE_BYTES
) -> list[list[StateSpan]]:
    """Splits all elements of all tensors into slices of about `slice_bytes`.

    `units` are the indices of tensors that change together. A large unit is cut so that the same
    elements of all its tensors are in one slice. If their shapes differ, the unit stays whole.
    """
    slices: list[list[StateSpan]] = [[]]
    room = slice_bytes
    for unit in units:
        for piece in _pieces([(i, tensors[i]) for i in unit], slice_bytes):
            size = sum((s.end - s.begin) * tensors[s.tensor].element_size() for s in piece)
            # A piece that does not fit opens a new slice: pieces are never cut further.
            if size > room:
                slices.append([])
                room = slice_bytes
            slices[-1] += piece
            room -= size
    return [s for s in slices if s]


def _pieces(unit: Sequence[tuple[int, Tensor]], slice_bytes: int) -> Iterator[list[StateSpan]]:
    """Yields the spans of one unit, in pieces that can be updated independently."""
    unit = [(i, t) for i, t in unit if t.numel()]
    single = [StateSpan(i, 0, 1) for i, t in unit if t.numel() == 1]
    many = [(i, t) for i, t in unit if t.numel() > 1]
    # Same indices mean the same elements only where layouts agree. Otherwise no cut is safe.
    if len({(t.shape, t.stride()) for _, t in many}) > 1:
        yield [*single, *(StateSpan(i, 0, t.numel()) for i, t in many)]
        return
    if not many:
        yield single
        return
    count = many[0][1].numel()
    step = max(1, slice_bytes // sum(t.element_size() for _, t in many))
    for begin in range(0, count, step):
        end = min(count, begin + step)
        # Scalars (the step counter of Adam) go with the first piece: they are updated once per
        # step, with the rest of the unit.
        yield [*(single if begin == 0 else []), *(StateSpan(i, begin, end) for i, _ in many)]


def bytes_of(tensors: Sequence[Tensor], spans: Sequence[StateSpan]) -> Iterator[Tensor]:
    """Yields the elements of a slice as byte views; CPU tensors are not copied."""
    for span in spans:
        yield tensors[span.tensor][span.begin : span.end].view(torch.uint8)


def pack(tensors: Sequence[Tensor], spans: Sequence[StateSpan]) -> Tensor:
    """Returns the bytes of a slice as one CPU tensor."""
    return torch.cat([part.cpu() for part in bytes_of(tensors, spans)])


def unpack(tensors: Sequence[Tensor], spans: Sequence[StateSpan], packed: Tensor) -> None:
    """Writes the bytes of a slice into the tensors."""
    begin = 0
    for part in bytes_of(tensors, spans):
        part.copy_(packed[begin : begin + part.numel()])
        begin += part.numel()


def flatten(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns each tensor as a vector in memory order. Raises ValueError if one is not dense."""
    for t in tensors:
        if not is_dense(t):
            raise ValueError("parameters and optimizer state must be dense tensors")
    return [t.detach().as_strided((t.numel(),), (1,)) for t in tensors]


def is_dense(tensor: Tensor) -> bool:
    """Returns whether the elements fill a contiguous run of memory, in any order of dimensions."""
    if tensor.numel() == 0:
        return True
    # Compact strides: sorted ascending, each stride is the product of the sizes before it.
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class StateSender:
    """Sends the state of this worker to joining workers, between its steps."""

    def __init__(
        self,
        group: WorkerGroup,
        learners: Sequence[int],
        parts: TrainingState,
        *,
        again: bool = False,
    ) -> None:
        """With `again`, the whole state is sent before the next step."""
        self._group, self._learners, self._parts = group, tuple(learners), parts
        self._again, self._at_once = again, again or not parts.elementwise
        self._tensors: list[Tensor] = []
        self._slices: list[list[StateSpan]] = []
        self._next = NO_MORE
        self._versions: list[int] = []
        self._stale = self._skeleton_sent = False
        self._stop = threading.Event()
        self._call: Future[None] | None = None

    @property
    def complete(self) -> bool:
        """Returns whether every slice has been sent."""
        return self._next == len(self._slices)

    def begin(self) -> None:
        """Starts to send in the background, until `end`."""
        if not self.complete:
            self._call = self._start()

    def stepped(self) -> None:
        """Records that a step was made on the state that was sent so far."""
        # A step may create optimizer state or replace tensors. The list of slices no longer covers
        # the state then.
        if not self.complete and self._addresses() != [t.data_ptr() for t in self._tensors]:
            self._stale = True
        # The step itself raised the versions; only later changes are the script's own.
        self._versions = self._parts.versions()

    def is_stale(self) -> bool:
        """Returns whether the model differs from what was sent plus the steps since.

        NOTE: not checked while the state is sent again. A script that changes the model in every
        iteration would otherwise keep joining workers waiting for ever.
        """
        if self._next != NO_MORE and not self._again:
            self._stale |= self._versions != self._parts.versions()
        return self._stale

    def end(self) -> None:
        """Waits until the tensors may change. Raises GroupBroken."""
        if self._call is not None:
            # Without `_at_once` the thread stops after the slice it is sending, so the step waits
            # for one slice at most.
            if not self._at_once:
                self._stop.set()
            call, self._call = self._call, None
            join(call, self._group.patience)

    def run(self) -> None:
        """Sends the whole state now. Raises GroupBroken."""
        join(self._start(), self._group.patience)

    def _start(self) -> Future[None]:
        if self._next == NO_MORE:
            tensors = self._parts.tensors()
            # Listed at the first start, when optimizer state exists: it is created by the first
            # step, and a list from before would miss it.
            self._tensors = flatten(tensors)
            self._slices = slices_of(tensors, self._parts.units())
            self._copy_stream = CopyStream(tensors[0].device)
            self._versions = self._parts.versions()
            self._next = 0
        self._stop.clear()
        self._copy_stream.begin()
        return submit("state", self._send)

    def _addresses(self) -> list[int]:
        return [t.data_ptr() for t in self._parts.tensors()]

    def _send(self) -> None:
        # The receiver needs the shapes of the skeleton before it can allocate tensors for slices.
        if not self._skeleton_sent:
            self._skeleton_sent = True
            self._send_skeleton()
        first = True  # one slice per step at least, or short iterations would send nothing
        while not self.complete and (first or not self._stop.is_set()):
            with self._copy_stream.copying():
                packed = pack(self._tensors, self._slices[self._next])
            self._send_number(self._next)
            # All receivers at once: the slice was copied from the device only once for them.
            sent = [self._group.send(packed, to, TAG_SLICE) for to in self._learners]
            for operation in sent:
                operation.wait()
            self._next += 1
            first = False
        if not self.complete:
            self._send_number(NO_MORE)

    def _send_skeleton(self) -> None:
        body = torch.frombuffer(bytearray(self._parts.skeleton()), dtype=torch.uint8)
        head = torch.tensor([body.numel()])
        to_all = [(t, to) for to in self._learners for t in (head, body)]
        for operation in [self._group.send(t, to, TAG_SKELETON) for t, to in to_all]:
            operation.wait()

    def _send_number(self, number: int) -> None:
        head = torch.tensor([number])
        for operation in [self._group.send(head, to, TAG_HEAD) for to in self._learners]:
            operation.wait()


class StateReceiver:
    """Receives the state of a training worker into this joining worker."""

    def __init__(self, group: WorkerGroup, source: int, parts: TrainingState) -> None:
        """Receives the plain values of the state. Raises GroupBroken."""
        self._group, self._source = group, source
        parts.take_skeleton(receive_skeleton(group, source))
        tensors = parts.tensors()
        self._tensors = flatten(tensors)
        self._slices = slices_of(tensors, parts.units())
        self._copy_stream = CopyStream(tensors[0].device)
        self._next = 0
        self._writing = threading.Lock()
        self._given_up = False
        self._call: Future[None] | None = None

    @property
    def complete(self) -> bool:
        """Returns whether every slice has arrived."""
        return self._next == len(self._slices)

    def begin(self) -> None:
        """Starts to receive in the background, until `end`."""
        if not self.complete:
            self._copy_stream.begin()
            self._call = submit("state", self._receive)

    def end(self) -> None:
        """Waits for the slices that are sent before this step. Raises GroupBroken."""
        if self._call is not None:
            call, self._call = self._call, None
            self._join(call)

    def run(self) -> None:
        """Receives the whole state now. Raises GroupBroken."""
        self._copy_stream.begin()
        self._join(submit("state", self._receive))

    def _join(self, call: Future[None]) -> None:
        try:
            join(call, self._group.patience)
        except GroupBroken:
            # The thread may still sit in a receive. It must not write into tensors that the next
            # generation already trains.
            with self._writing:
                self._given_up = True
            raise

    def _receive(self) -> None:
        head = torch.empty(1, dtype=torch.int64)
        while not self.complete:
            self._group.receive(head, self._source, TAG_HEAD).wait()
            number = int(head.item())
            # The sender decides where a step cuts the stream; both sides then make the same step.
            if number == NO_MORE:
                return
            spans = self._slices[number]
            size = sum(part.numel() for part in bytes_of(self._tensors, spans))
            packed = torch.empty(size, dtype=torch.uint8)
            self._group.receive(packed, self._source, TAG_SLICE).wait()
            with self._writing, torch.no_grad():
                # `_join` may have given up while this thread waited for the slice.
                if self._given_up:
                    return
                with self._copy_stream.copying():
                    unpack(self._tensors, spans, packed)
                self._next = number + 1


def join(call: Future[T], patience: WaitPolicy) -> T:
    """Returns the result of a call in the background. Raises GroupBroken, also on giving up."""
    began_s = time.monotonic()
    while not wait([call], WAIT_SLICE.total_seconds()).done:
        patience.look(began_s, "state")
    try:
        return call.result()
    except RuntimeError as error:
        # Gloo reports a dead peer as a RuntimeError; the loop recovers from GroupBroken only.
        raise GroupBroken(str(error)) from None


def receive_skeleton(group: WorkerGroup, source: int) -> bytes:
    """Receives the plain values of the state of a training worker. Raises GroupBroken."""

    def receive() -> bytes:
        head = torch.empty(1, dtype=torch.int64)
        group.receive(head, source, TAG_SKELETON).wait()
        body = torch.empty(int(head.item()), dtype=torch.uint8)
        group.receive(body, source, TAG_SKELETON).wait()
        return body.numpy().tobytes()

    # Waits for messages are not sliced, so the training thread never waits for one itself.
    return join(submit("state", receive), group.patience)
