"""A member of a co-located set: a data-parallel training job of three processes.

The loader reads and decodes samples on the host's core; the trainer computes on the other core
(forward, backward, update), and reduces its gradients with the peer, its second worker, which is
beyond the network and only reduces. A loader works ahead of its trainer by `ahead` batches; 0: it
waits for the end of the iteration, as a loop without loader processes does.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Semaphore
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.colocation_machine import (
    COMPUTE_CORE,
    DEVICES_FIRST,
    HOST_CORE,
    LOOPS_FIRST,
    SIDE,
    Disk,
    Machine,
    SampleReader,
    come_first,
    device,
    enter_namespace,
    thread_id,
)
from benchmarks.colocation_profile import FREE, LOCK_STEP, TOKENS
from benchmarks.colocation_turns import Free, LockStep, PhasesOver, Tokens, Turns

if TYPE_CHECKING:
    import torch

STORAGE, CPU, COMPUTE, NETWORK = range(4)
STAGES = ("storage", "cpu", "compute", "network")
AHEAD_MAX = 2
SPREAD = 0.25
"""Of the sizes of batches. Equal ones would keep two jobs in the phase in which they started."""
WIDTH = 128
ROWS = 256
"""Of a step; a row is what a layer takes of a sample."""
CROP = 224
IMAGE_FLOATS = CROP * CROP * 3
SLOT_IMAGES = 4
STEPS_OF_SLOT = SLOT_IMAGES * IMAGE_FLOATS // (ROWS * WIDTH)
SLOTS = AHEAD_MAX + 1


@dataclass(frozen=True, slots=True)
class Kind:
    """What an iteration of a job does: chunks read, images decoded, and the network trained.

    The batch is computed in so many steps, whose gradients accumulate. All three are means:
    batches differ in size by up to `SPREAD`.
    """

    name: str
    chunks: int
    images: int
    layers: int
    steps: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one member does in a cell. Iterations count that end from `from_s` to `until_s`."""

    kind: Kind
    turns: str
    ahead: int
    idle_phases: int
    start_s: float
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Told:
    """What a process did while it counted: seconds a stage (its work, its waiting), core seconds.

    `ends_s` are the ends of a trainer's iterations; `core_s` is of the process, `main_s` of its
    main thread.
    """

    used_s: dict[int, list[float]]
    waited_s: dict[int, list[float]]
    ends_s: list[float]
    core_s: float
    main_s: float


class Shared:
    """What the processes of one member share."""

    def __init__(
        self, context: SpawnContext, number: int, disk: Disk, tokens: Tokens, steps: LockStep
    ) -> None:
        self.number, self.disk, self.tokens, self.steps = number, disk, tokens, steps
        self.empty: Semaphore = context.Semaphore(0)
        self.full: Semaphore = context.Semaphore(0)
        self.is_closing = context.RawValue("i", 0)
        self.sizes = context.RawArray("d", SLOTS)
        self.memory = context.RawArray("f", SLOTS * SLOT_IMAGES * IMAGE_FLOATS)

    def begin(self, ahead: int) -> None:
        """Empties the slots; nobody may be at work."""
        for semaphore in (self.empty, self.full):
            while semaphore.acquire(False):
                pass
        self.is_closing.value = 0
        for _ in range(ahead + 1):
            self.empty.release()

    def slots(self) -> NDArray[np.float32]:
        flat: NDArray[np.float32] = np.frombuffer(self.memory, dtype=np.float32)
        return flat.reshape(SLOTS, SLOT_IMAGES, IMAGE_FLOATS)

    def turns(self, name: str) -> Turns:
        known: dict[str, Turns] = {FREE: Free(), TOKENS: self.tokens, LOCK_STEP: self.steps}
        return known[name]

    def is_over(self, part: Part) -> bool:
        if part.turns == LOCK_STEP:
            return self.steps.is_over
        return time.monotonic() >= part.until_s


class Diary:
    """Writes down what a process does in a cell."""

    def __init__(self, part: Part, turns: Turns, member: int) -> None:
        self._part, self._turns, self._member = part, turns, member
        self._told = Told({}, {}, [], 0.0, 0.0)
        self._began: tuple[float, float] | None = None
        self._ended: tuple[float, float] = (0.0, 0.0)

    @contextmanager
    def stage(self, resource: int) -> Iterator[None]:
        """Takes a turn on a resource, and times the waiting and the work."""
        asked_s = time.monotonic()
        self._turns.take(resource, self._member)
        began_s = time.monotonic()
        yield
        ended_s = time.monotonic()
        self._turns.give(resource, self._member)  # ends a phase, in lock step
        gave_s = time.monotonic()
        if self._counts(ended_s):
            self._told.used_s.setdefault(resource, []).append(ended_s - began_s)
            waited_s = began_s - asked_s + gave_s - ended_s
            self._told.waited_s.setdefault(resource, []).append(waited_s)

    def iteration(self) -> None:
        """Ends an iteration."""
        if self._counts(now_s := time.monotonic()):
            self._told.ends_s.append(now_s)

    def _counts(self, now_s: float) -> bool:
        if not self._part.from_s <= now_s < self._part.until_s:
            return False
        self._ended = time.process_time(), time.thread_time()
        self._began = self._began or self._ended
        return True

    def told(self) -> Told:
        process, main = self._began or self._ended
        return Told(
            self._told.used_s,
            self._told.waited_s,
            self._told.ends_s,
            self._ended[0] - process,
            self._ended[1] - main,
        )


def until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def serve(orders: Connection, play: Callable[[Part], Told | None]) -> None:
    """Says which thread it is, then plays one part after the other, until it gets none."""
    orders.send(thread_id())
    while (part := orders.recv()) is not None:
        orders.send(play(part))


# The loader.


def loader(shared: Shared, machine: Machine, orders: Connection) -> None:
    os.sched_setaffinity(0, {HOST_CORE})
    come_first(LOOPS_FIRST)
    reader = SampleReader(machine.samples, shared.disk, 61 * shared.number)
    slots = shared.slots()
    serve(orders, lambda part: load(shared, part, reader, slots))


def load(shared: Shared, part: Part, reader: SampleReader, slots: NDArray[np.float32]) -> Told:
    diary = Diary(part, shared.turns(part.turns), shared.number)
    until(part.start_s)
    batch, rng = 0, np.random.default_rng(shared.number)
    with suppress(PhasesOver):
        for _ in range(part.idle_phases):
            shared.steps.give(STORAGE, shared.number)
        while shared.empty.acquire() and not shared.is_over(part):
            size = shared.sizes[batch % SLOTS] = rng.uniform(1 - SPREAD, 1 + SPREAD)
            count, images = (whole(size * n, rng) for n in (part.kind.chunks, part.kind.images))
            with diary.stage(STORAGE), device():
                chunks = reader.read(count)
            with diary.stage(CPU):
                decode(chunks, images, slots[batch % SLOTS])
            shared.full.release()
            batch += 1
    shared.is_closing.value = 1
    shared.full.release()
    return diary.told()


def whole(count: float, rng: np.random.Generator) -> int:
    """Returns a whole number, at least 1, whose mean is the count."""
    return max(1, int(count + rng.random()))


def decode(chunks: Sequence[bytes], images: int, slot: NDArray[np.float32]) -> None:
    """Decodes so many images of the chunks, each cut, turned and normalised."""
    for n in range(images):
        chunk = chunks[n % len(chunks)]
        size_bytes = int.from_bytes(chunk[:4], "little")
        raw = zlib.decompress(chunk[4 : 4 + size_bytes])
        image = np.frombuffer(raw, dtype=np.uint8).reshape(SIDE, SIDE, 3)
        corner = (7 * n) % (SIDE - CROP)
        cut = image[corner : corner + CROP, corner : corner + CROP]
        turned = cut[:, ::-1] if n % 2 else cut
        target = slot[n % SLOT_IMAGES].reshape(CROP, CROP, 3)
        np.subtract(turned, np.float32(80), out=target)
        target *= np.float32(1 / 40)


# The trainer.


class Model:
    """Layers, their gradients in one tensor, and the update that is due."""

    def __init__(self, kind: Kind) -> None:
        import torch

        torch.manual_seed(0)
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(kind.layers)]
        self._module = torch.nn.Sequential(*layers, torch.nn.Tanh())
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=1e-4)
        self._steps = kind.steps
        self._rng = np.random.default_rng(0)
        # The first element tells the peer whether to go on.
        self.bucket = torch.zeros(1 + kind.layers * WIDTH * WIDTH)

    def compute(self, slot: NDArray[np.float32], size: float) -> None:
        """Applies the last gradients, and computes those of a batch of a size."""
        import torch

        flat = torch.from_numpy(slot.reshape(-1))
        self._apply()
        self._optimizer.zero_grad()
        for step in range(whole(size * self._steps, self._rng)):
            first = step % STEPS_OF_SLOT * ROWS * WIDTH
            rows = flat[first : first + ROWS * WIDTH].view(ROWS, WIDTH)
            self._module(rows).square().mean().backward()
        gradients = [p.grad.view(-1) for p in self._module.parameters() if p.grad is not None]
        torch.cat(gradients, out=self.bucket[1:])

    def _apply(self) -> None:
        place = 1
        for parameter in self._module.parameters():
            count = parameter.numel()
            parameter.grad = self.bucket[place : place + count].view_as(parameter)
            place += count
        self._optimizer.step()


def joined(machine: Machine, number: int, rank: int) -> torch.distributed.ProcessGroup:
    """Returns the process group of trainer and peer; its threads are on the host's core."""
    come_first(DEVICES_FIRST)
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    name = machine.namespaces[rank]
    os.environ["GLOO_SOCKET_IFNAME"] = name
    enter_namespace(name)
    os.sched_setaffinity(0, {HOST_CORE})
    distributed.init_process_group(
        "gloo", init_method=f"file://{machine.place}/group{number}", rank=rank, world_size=2
    )
    group = distributed.group.WORLD
    assert group is not None
    return group


def trainer(shared: Shared, machine: Machine, orders: Connection) -> None:
    group = joined(machine, shared.number, 0)
    os.sched_setaffinity(0, {COMPUTE_CORE})
    come_first(LOOPS_FIRST)
    slots = shared.slots()
    Model(Kind("first", 1, 1, 1, 1)).compute(slots[0], 1.0)  # imports much
    serve(orders, lambda part: train(shared, part, group, slots))


def train(
    shared: Shared,
    part: Part,
    group: torch.distributed.ProcessGroup,
    slots: NDArray[np.float32],
) -> Told:
    from torch import distributed

    model = Model(part.kind)
    diary = Diary(part, shared.turns(part.turns), shared.number)
    batch = 0
    with suppress(PhasesOver):
        while shared.full.acquire() and not shared.is_closing.value:
            with diary.stage(COMPUTE):
                model.compute(slots[batch % SLOTS], shared.sizes[batch % SLOTS])
            if part.ahead:
                shared.empty.release()
            with diary.stage(NETWORK):
                model.bucket[0] = 0
                distributed.all_reduce(model.bucket, group=group)
                model.bucket *= 0.5
            diary.iteration()
            if not part.ahead:
                shared.empty.release()
            batch += 1
    shared.empty.release()
    while not shared.is_closing.value:  # the phases ended here: the loader may still wait
        shared.full.acquire()
    model.bucket[0] = 1
    distributed.all_reduce(model.bucket, group=group)
    return diary.told()


def peer(shared: Shared, machine: Machine, orders: Connection) -> None:
    group = joined(machine, shared.number, 1)
    serve(orders, lambda part: reduce(part, group))


def reduce(part: Part, group: torch.distributed.ProcessGroup) -> Told:
    """Gives gradients of its own, all nothing, until the trainer ends."""
    import torch
    from torch import distributed

    bucket = torch.zeros(1 + part.kind.layers * WIDTH * WIDTH)
    diary = Diary(part, Free(), 0)
    while True:
        bucket.zero_()
        distributed.all_reduce(bucket, group=group)
        diary.iteration()
        if bucket[0] > 0:
            return diary.told()
