"""A generation's process group: what its members say to each other, waited for in slices.

This file alone constructs process groups, and nothing in it waits without bound: each wait looks
at a reason to give up every `SLICE`. A group is never taken down by the thread that trains.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol, cast

import torch
from torch.distributed.distributed_c10d import Store, Work

from dovetail.train.process.background import drop, start

SLICE = timedelta(milliseconds=100)
OPERATION = timedelta(minutes=30)
"""How long an operation may wait for a slow member; we give up earlier, when told to."""
BUILDING = timedelta(seconds=60)
"""How long a member that said it is there may take to connect: it may get no CPU for a while."""
CONTROL_THREADS, DATA_THREADS = 2, 2
SETTLED_S = 0.25
"""How long after the last operation a group on GPUs is kept: a kernel of another member may still
read from this one, and nothing on the host says when it has ended."""
LETS_GO_S = 30.0
"""How long an aborted operation may take to let go of its buffers."""
NCCL_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
"""Torch's own watch over NCCL ends the process when another member is gone; we go on without it."""


class Broken(Exception):
    """A generation cannot go on: a collective failed, or it was abandoned."""


class Stuck(Exception):
    """A GPU still works at an operation that was aborted: this process cannot go on."""


class Collectives(Protocol):
    """What we use of torch's process groups, gloo's or NCCL's."""

    def allreduce(self, tensors: list[torch.Tensor]) -> Work:
        """Adds tensors up over all members, in place."""

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor]) -> Work:
        """Gives the tensors of all members to all."""

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        """Sends a tensor to one member."""

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Receives a tensor from one member."""

    def abort(self) -> None:
        """Ends what is under way, and gives up everything held on a GPU. Raises RuntimeError."""


class Waiting(Protocol):
    """Something under way that can be waited for."""

    def wait(self) -> None:
        """Returns when it is done. Raises Broken when it cannot be."""


class Summing(Waiting, Protocol):
    """An operation on a buffer of gradients."""

    def lets_go(self) -> bool:
        """Tells of a group that was given up whether its buffer is ours again. Raises Stuck."""


class Done:
    """What needs no waiting for."""

    def wait(self) -> None:
        """Returns at once."""

    def lets_go(self) -> bool:
        """Has nothing to let go."""
        return True


DONE = Done()


class Patience:
    """When a wait in a generation gives up, and when it complains."""

    def __init__(
        self, *, gives_up: Callable[[], str | None], stalls: Callable[[str], None], stall_s: float
    ) -> None:
        """`gives_up` says why to give up, if there is reason; `stalls` is told of long waits."""
        self._gives_up, self._stalls, self._stall_s = gives_up, stalls, stall_s

    def look(self, since_s: float, what: str) -> None:
        """Raises Broken if there is reason to; complains about a wait that lasts."""
        why = self._gives_up()
        if why is not None:
            raise Broken(why)
        waited_s = time.monotonic() - since_s
        if waited_s > self._stall_s:
            self._stalls(f"stalled: {what} for {waited_s:.0f} s")


class Pending:
    """An operation of the group that is under way."""

    def __init__(self, work: Work, patience: Patience, what: str) -> None:
        self._work, self._patience, self._what = work, patience, what

    def wait(self) -> None:
        """Returns when the operation is done here. Raises Broken."""
        since_s = time.monotonic()
        while True:
            try:
                self._work.wait(SLICE)
                break
            except RuntimeError:
                if self._work.is_completed():  # it failed, or was done just after the slice
                    self._end()
                    break
            self._patience.look(since_s, self._what)

    def lets_go(self) -> bool:
        """Tells whether it has ended: nothing makes an operation of gloo end early."""
        return bool(self._work.is_completed())

    def _end(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise Broken(f"{self._what}: {first_line(error)}") from None


class PendingMessage:
    """A message from one member to another. Waited for without slices, so never by the loop.

    NOTE: gloo takes a wait for a message that times out for the failure of all the group.
    """

    def __init__(self, work: Work, what: str) -> None:
        self._work, self._what = work, what

    def wait(self) -> None:
        """Returns when the message is through. Raises Broken."""
        try:
            self._work.wait(OPERATION)
        except RuntimeError as error:
            raise Broken(f"{self._what}: {first_line(error)}") from None


class PendingOnDevice(Pending):
    """An operation on a GPU: its `wait` would only order streams, so it is asked whether done."""

    def wait(self) -> None:
        """Returns when the operation is done. Raises Broken."""
        since_s, next_look_s = time.monotonic(), time.monotonic() + SLICE.total_seconds()
        while not self._work.is_completed():
            if time.monotonic() > next_look_s:
                next_look_s += SLICE.total_seconds()
                self._patience.look(since_s, self._what)
            time.sleep(0.0001)
        self._patience.look(since_s, self._what)  # one that was aborted looks complete
        self._end()

    def lets_go(self) -> bool:
        """Waits until the GPU has ended it: its group was aborted. Raises Stuck."""
        give_up_s = time.monotonic() + LETS_GO_S
        while not self._work.is_completed():
            if time.monotonic() > give_up_s:
                raise Stuck(f"{self._what}: NCCL did not end within {LETS_GO_S:g} s of its abort")
            time.sleep(0.001)
        return True


def first_line(error: BaseException) -> str:
    """Returns the first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class Group:
    """The members of one generation, as this one sees them; alone it needs no connections."""

    def __init__(
        self,
        generation: int,
        rank: int,
        size: int,
        *,
        control: Collectives | None = None,
        data: Collectives | None = None,
        by_nccl: bool = False,
    ) -> None:
        self.generation, self.rank, self.size = generation, rank, size
        self._control, self._data, self._by_nccl = control, data, by_nccl
        self._patience: Patience | None = None

    @property
    def patience(self) -> Patience:
        """Returns what waits look at."""
        assert self._patience is not None, "a group is entered before it is used"
        return self._patience

    def have(self, patience: Patience) -> None:
        """Takes what its waits shall look at."""
        self._patience = patience

    def sum_control(self, values: torch.Tensor) -> Waiting:
        """Adds up small CPU values of all members, in place."""
        if self._control is None:
            return DONE
        what = "step agreement"
        return Pending(
            begun(lambda g: g.allreduce([values]), self._control, what), self.patience, what
        )

    def sum_gradients(self, flat: torch.Tensor) -> Summing:
        """Adds up gradients of all members, in place."""
        if self._data is None:
            return DONE
        what = "gradients"
        work = begun(lambda g: g.allreduce([flat]), self._data, what)
        return (PendingOnDevice if self._by_nccl else Pending)(work, self.patience, what)

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all members, by rank. Raises Broken."""
        if self._control is None:
            return row.unsqueeze(0).clone()
        rows = [torch.empty_like(row) for _ in range(self.size)]
        what = "entering"
        work = begun(lambda g: g.allgather([rows], [row]), self._control, what)
        Pending(work, self.patience, what).wait()
        return torch.stack(rows)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Waiting:
        """Sends a CPU tensor to one member."""
        assert self._control is not None
        what = "sending state"
        return PendingMessage(begun(lambda g: g.send([tensor], to, tag), self._control, what), what)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Waiting:
        """Receives a CPU tensor from one member, in place."""
        assert self._control is not None
        what = "receiving state"
        work = begun(lambda g: g.recv([tensor], source, tag), self._control, what)
        return PendingMessage(work, what)

    def abandon(self) -> None:
        """Ends what hangs on a GPU, from any thread: the loop may be stuck behind it."""
        data = self._data
        if data is not None and self._by_nccl:
            drop([], lambda: abort(data))

    def discard(self, *, broken: bool = False) -> None:
        """Gives its connections up, without waiting for that."""
        if self._control is None or self._data is None:
            return
        data, held = self._data, [self._data, self._control]
        self._data = self._control = None
        if self._by_nccl:
            # Whoever was in its operations must have left them, unless they hang.
            drop([*held], lambda: abort(data), after_s=0.0 if broken else SETTLED_S)
        else:
            drop([*held])


def abort(group: Collectives) -> None:
    """Ends the operations of a group, and gives up what it holds on a GPU."""
    with suppress(RuntimeError):  # it takes too long: whoever needs the buffers finds out
        group.abort()


def begun(call: Callable[[Collectives], Work], group: Collectives, what: str) -> Work:
    """Returns an operation that was begun. Raises Broken."""
    try:
        return call(group)
    except RuntimeError as error:
        raise Broken(f"{what}: {first_line(error)}") from None


def connect(
    store: Callable[[str], Store],
    *,
    generation: int,
    rank: int,
    size: int,
    host: str,
    device: torch.device,
) -> Group:
    """Returns the connected group of members that all are there. Raises RuntimeError.

    `store` gives the members' store under a prefix. Agreements and state always travel by gloo;
    gradients by NCCL where each member has a GPU of its own, and agreeing must not wait for its
    stream; else by gloo too.
    """
    if size == 1:
        return Group(generation, 0, 1)
    control = gloo(store("control"), rank, size, host, threads=CONTROL_THREADS)
    by_nccl = device.type == "cuda" and have_their_own(store("devices"), rank, size, device)
    if by_nccl:
        data = nccl(store("data"), rank, size, device)
    else:
        data = gloo(store("data"), rank, size, host, threads=DATA_THREADS)
    return Group(generation, rank, size, control=control, data=data, by_nccl=by_nccl)


def have_their_own(store: Store, rank: int, size: int, device: torch.device) -> bool:
    """Returns whether no two members are on one GPU, which NCCL refuses; also not on parts of it.

    All members come to the same answer. Raises RuntimeError.
    """
    store.set(str(rank), place_of(device))
    return len({store.get(str(one)) for one in range(size)}) == size


def place_of(device: torch.device) -> str:
    """Returns where a GPU is: its machine, and its place there (instances of one GPU share it)."""
    about = torch.cuda.get_device_properties(device)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    place = [str(getattr(about, name)) for name in names if hasattr(about, name)]
    return "/".join((socket.gethostname(), *(place or [str(about.uuid)])))


def gloo(store: Store, rank: int, size: int, host: str, *, threads: int) -> Collectives:
    """Returns a process group over TCP that listens on `host` alone."""
    from torch.distributed import ProcessGroupGloo

    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = BUILDING
    options._threads = threads
    group = ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(OPERATION)
    return cast(Collectives, group)


def nccl(store: Store, rank: int, size: int, device: torch.device) -> Collectives:
    """Returns a process group over NCCL, its connections made now and not at the first step."""
    from torch.distributed import ProcessGroupNCCL

    os.environ.update(NCCL_ENVIRONMENT)  # read when a group is constructed
    options = ProcessGroupNCCL.Options()
    options._timeout = OPERATION
    group = ProcessGroupNCCL(store, rank, size, options)
    within(BUILDING, lambda: group.eager_connect_single_device(device))
    return cast(Collectives, group)


def within(limit: timedelta, connect: Callable[[], None]) -> None:
    """Connects, or leaves that to its thread when it takes too long. Raises RuntimeError.

    NOTE: NCCL waits without end for a member that went away while connecting, and cannot be told.
    """
    failed: list[RuntimeError] = []

    def run() -> None:
        try:
            connect()
        except RuntimeError as error:
            failed.append(error)

    thread = start("connect", run)
    thread.join(limit.total_seconds())
    if thread.is_alive():
        raise RuntimeError(f"NCCL did not connect within {limit.total_seconds():g} s")
    if failed:
        raise failed[0]


def agreed(values: Sequence[float], members: int) -> bool:
    """Returns whether all members said the same number: sum of squares and square of the sum."""
    total, squares = values
    return members * squares == total * total
