"""State for those who join, sent while the others train.

Parameters change only in the optimizer's step, so during an iteration they can be read in place: a
thread sends slice after slice, straight from the live tensors, until the step is due. Who joins
takes part in adding up gradients from the first iteration on, without samples of its own, and
makes the same steps; so a slice that has arrived stays right, and when the last one has arrived
the state is that of the others, bit by bit. The training loop never stands still for the size of
a model.

That holds if a slice has all that its update depends on: elements of a parameter travel with
those of its state. Where elements depend on others (an optimizer that is not known to work element
by element, or hooks of the user's), all is sent before the first step, and that step waits. So it
is when state comes to be while it is sent (a parameter that is trained for the first time, say), or
the script changes the model between two steps: what was sent is worth nothing, and all is sent
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dovetail.train.process.background import start
from dovetail.train.process.device_stream import Beside
from dovetail.train.state.state import Parts
from dovetail.train.sync.process_group import SLICE, Broken, Group, Patience

SLICE_BYTES = 4 << 20
TAG_HEAD, TAG_SLICE, TAG_SKELETON = 1, 2, 3
NO_MORE = -1
"""In place of a slice's number: none before the next step."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of elements of one tensor."""

    tensor: int
    begin: int
    end: int


def slices_of(
    tensors: Sequence[Tensor], units: Sequence[Sequence[int]], slice_bytes: int = SLICE_BYTES
) -> list[list[Span]]:
    """Returns all elements of all tensors in slices of about so many bytes.

    `units` are the places of tensors that change together. A large unit is cut so that the same
    elements of all its tensors are in one slice; if they are not alike, it is a slice of its own.
    """
    slices: list[list[Span]] = [[]]
    room = slice_bytes
    for unit in units:
        for piece in _pieces([(i, tensors[i]) for i in unit], slice_bytes):
            size = sum((s.end - s.begin) * tensors[s.tensor].element_size() for s in piece)
            if size > room:
                slices.append([])
                room = slice_bytes
            slices[-1] += piece
            room -= size
    return [s for s in slices if s]


def _pieces(unit: Sequence[tuple[int, Tensor]], slice_bytes: int) -> Iterator[list[Span]]:
    """Yields the elements of tensors that change together, in pieces that can stand alone."""
    unit = [(i, t) for i, t in unit if t.numel()]
    single = [Span(i, 0, 1) for i, t in unit if t.numel() == 1]
    many = [(i, t) for i, t in unit if t.numel() > 1]
    if len({(t.shape, t.stride()) for _, t in many}) > 1:
        yield [*single, *(Span(i, 0, t.numel()) for i, t in many)]
        return
    if not many:
        yield single
        return
    count = many[0][1].numel()
    step = max(1, slice_bytes // sum(t.element_size() for _, t in many))
    for begin in range(0, count, step):
        end = min(count, begin + step)
        yield [*(single if begin == 0 else []), *(Span(i, begin, end) for i, _ in many)]


def bytes_of(tensors: Sequence[Tensor], spans: Sequence[Span]) -> Iterator[Tensor]:
    """Yields the elements of a slice as bytes, where they lie (a CPU tensor is not copied)."""
    for span in spans:
        yield tensors[span.tensor][span.begin : span.end].view(torch.uint8)


def pack(tensors: Sequence[Tensor], spans: Sequence[Span]) -> Tensor:
    """Returns the bytes of a slice, one after the other, on the CPU."""
    return torch.cat([part.cpu() for part in bytes_of(tensors, spans)])


def unpack(tensors: Sequence[Tensor], spans: Sequence[Span], packed: Tensor) -> None:
    """Writes the bytes of a slice to where they belong."""
    begin = 0
    for part in bytes_of(tensors, spans):
        part.copy_(packed[begin : begin + part.numel()])
        begin += part.numel()


def flattened(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the tensors as runs of elements in the order of memory. Raises ValueError."""
    for t in tensors:
        if not is_dense(t):
            raise ValueError("parameters and optimizer state must be dense tensors")
    return [t.detach().as_strided((t.numel(),), (1,)) for t in tensors]


def is_dense(tensor: Tensor) -> bool:
    """Returns whether the elements fill a run of memory, in whatever order of dimensions."""
    if tensor.numel() == 0:
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class Idle:
    """No state under way."""

    complete = True

    def begin(self) -> None:
        """Has nothing to begin."""

    def end(self) -> None:
        """Has nothing to end."""

    def run(self) -> None:
        """Has nothing to do."""


class Giving:
    """A member that trains and sends its state to others between the steps."""

    def __init__(
        self, group: Group, learners: Sequence[int], parts: Parts, *, again: bool = False
    ) -> None:
        """Sends it all before the next step, if it does so `again`."""
        self._group, self._learners, self._parts = group, tuple(learners), parts
        self._again, self._at_once = again, again or not parts.elementwise
        self._tensors: list[Tensor] = []
        self._slices: list[list[Span]] = []
        self._next = NO_MORE
        self._versions: list[int] = []
        self._stale = self._skeleton_sent = False
        self._stop = threading.Event()
        self._thread: Background | None = None

    @property
    def complete(self) -> bool:
        """Returns whether all is sent."""
        return self._next == len(self._slices)

    def begin(self) -> None:
        """Starts sending, until `end`."""
        if not self.complete:
            self._thread = self._start()

    def stepped(self) -> None:
        """Takes note of a step, made on the state as far as it was sent."""
        if not self.complete and self._places() != [t.data_ptr() for t in self._tensors]:
            self._stale = True
        self._versions = self._parts.versions()

    def is_stale(self) -> bool:
        """Returns whether the model is not what was sent and steps have made of it.

        NOTE: not asked of what is sent again. A script that changes the model in each iteration,
        against all advice, would keep those who join waiting for ever.
        """
        if self._next != NO_MORE and not self._again:
            self._stale |= self._versions != self._parts.versions()
        return self._stale

    def end(self) -> None:
        """Returns when the tensors may change. Raises Broken."""
        if self._thread is not None:
            if not self._at_once:
                self._stop.set()
            thread, self._thread = self._thread, None
            thread.join()

    def run(self) -> None:
        """Sends all at once. Raises Broken."""
        self._start().join()

    def _start(self) -> Background:
        if self._next == NO_MORE:
            tensors = self._parts.tensors()
            self._tensors = flattened(tensors)
            self._slices = slices_of(tensors, self._parts.units())
            self._beside = Beside(tensors[0].device)
            self._versions = self._parts.versions()
            self._next = 0
        self._stop.clear()
        self._beside.begin()
        return Background(self._send, self._group.patience)

    def _places(self) -> list[int]:
        return [t.data_ptr() for t in self._parts.tensors()]

    def _send(self) -> None:
        if not self._skeleton_sent:
            self._skeleton_sent = True
            self._send_skeleton()
        first = True
        while not self.complete and (first or not self._stop.is_set()):
            with self._beside.copying():
                packed = pack(self._tensors, self._slices[self._next])
            self._tell(self._next)
            sent = [self._group.send(packed, to, TAG_SLICE) for to in self._learners]
            for one in sent:
                one.wait()
            self._next += 1
            first = False
        if not self.complete:
            self._tell(NO_MORE)

    def _send_skeleton(self) -> None:
        body = torch.frombuffer(bytearray(self._parts.skeleton()), dtype=torch.uint8)
        head = torch.tensor([body.numel()])
        to_all = [(t, to) for to in self._learners for t in (head, body)]
        for one in [self._group.send(t, to, TAG_SKELETON) for t, to in to_all]:
            one.wait()

    def _tell(self, number: int) -> None:
        head = torch.tensor([number])
        for one in [self._group.send(head, to, TAG_HEAD) for to in self._learners]:
            one.wait()


class Learning:
    """A member that joins and receives the state of one that trains."""

    def __init__(self, group: Group, source: int, parts: Parts) -> None:
        """Receives the plain values of the state. Raises Broken."""
        self._group, self._source = group, source
        parts.take_skeleton(receive_skeleton(group, source))
        tensors = parts.tensors()
        self._tensors = flattened(tensors)
        self._slices = slices_of(tensors, parts.units())
        self._beside = Beside(tensors[0].device)
        self._next = 0
        self._writing = threading.Lock()
        self._given_up = False
        self._thread: Background | None = None

    @property
    def complete(self) -> bool:
        """Returns whether all has arrived."""
        return self._next == len(self._slices)

    def begin(self) -> None:
        """Starts receiving."""
        if not self.complete:
            self._beside.begin()
            self._thread = Background(self._receive, self._group.patience)

    def end(self) -> None:
        """Returns when what is sent before this step has arrived. Raises Broken."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            self._join(thread)

    def run(self) -> None:
        """Receives all at once. Raises Broken."""
        self._beside.begin()
        self._join(Background(self._receive, self._group.patience))

    def _join(self, thread: Background) -> None:
        try:
            thread.join()
        except Broken:
            with self._writing:  # a thread that is left behind writes no more
                self._given_up = True
            raise

    def _receive(self) -> None:
        head = torch.empty(1, dtype=torch.int64)
        while not self.complete:
            self._group.receive(head, self._source, TAG_HEAD).wait()
            number = int(head.item())
            if number == NO_MORE:
                return
            spans = self._slices[number]
            size = sum(part.numel() for part in bytes_of(self._tensors, spans))
            packed = torch.empty(size, dtype=torch.uint8)
            self._group.receive(packed, self._source, TAG_SLICE).wait()
            with self._writing, torch.no_grad():
                if self._given_up:
                    return
                with self._beside.copying():
                    unpack(self._tensors, spans, packed)
                self._next = number + 1


Transfer = Idle | Giving | Learning


class Background:
    """A call on a thread of its own; `join` raises what it raised, or Broken on giving it up."""

    def __init__(self, call: Callable[[], None], patience: Patience) -> None:
        self._call, self._patience = call, patience
        self._error: Broken | None = None
        self._began_s = time.monotonic()
        self._thread = start("state", self._run)

    def join(self) -> None:
        """Returns when the call has. Raises Broken."""
        self._thread.join(SLICE.total_seconds())
        while self._thread.is_alive():
            self._patience.look(self._began_s, "state")
            self._thread.join(SLICE.total_seconds())
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except (Broken, RuntimeError) as error:
            self._error = error if isinstance(error, Broken) else Broken(str(error))


def receive_skeleton(group: Group, source: int) -> bytes:
    """Returns the plain values of the state of a member that trains. Raises Broken."""
    received = bytearray()

    def receive() -> None:
        head = torch.empty(1, dtype=torch.int64)
        group.receive(head, source, TAG_SKELETON).wait()
        body = torch.empty(int(head.item()), dtype=torch.uint8)
        group.receive(body, source, TAG_SKELETON).wait()
        received.extend(body.numpy())

    Background(receive, group.patience).join()
    return bytes(received)
