"""A generation's process group: what its members say to each other, waited for in slices.

This file alone constructs process groups, and nothing in it waits without bound: each wait looks
at a reason to give up every `SLICE`. A group is never taken down by the thread that trains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, cast

import torch
from torch.distributed.distributed_c10d import Store, Work

from dovetail.train.aside import drop

SLICE = timedelta(milliseconds=100)
OPERATION = timedelta(minutes=30)
"""How long an operation may wait for a slow member; we give up earlier, when told to."""
BUILDING = timedelta(seconds=20)
"""How long a member that said it is there may take to connect."""
CONTROL_THREADS, DATA_THREADS = 2, 2


class Broken(Exception):
    """A generation cannot go on: a collective failed, or it was abandoned."""


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


class Waiting(Protocol):
    """Something under way that can be waited for."""

    def wait(self) -> None:
        """Returns when it is done. Raises Broken when it cannot be."""


class Done:
    """What needs no waiting for."""

    def wait(self) -> None:
        """Returns at once."""


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
        self._end()


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
    ) -> None:
        self.generation, self.rank, self.size = generation, rank, size
        self._control, self._data = control, data
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
        return self._started(lambda g: g.allreduce([values]), self._control, "step agreement")

    def sum_gradients(self, flat: torch.Tensor) -> Waiting:
        """Adds up gradients of all members, in place."""
        if self._data is None:
            return DONE
        return self._started(
            lambda g: g.allreduce([flat]), self._data, "gradients", on_device=flat.is_cuda
        )

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all members, by rank. Raises Broken."""
        if self._control is None:
            return row.unsqueeze(0).clone()
        rows = [torch.empty_like(row) for _ in range(self.size)]
        self._started(lambda g: g.allgather([rows], [row]), self._control, "entering").wait()
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

    def _started(
        self,
        call: Callable[[Collectives], Work],
        group: Collectives,
        what: str,
        *,
        on_device: bool = False,
    ) -> Waiting:
        pending = PendingOnDevice if on_device else Pending
        return pending(begun(call, group, what), self.patience, what)

    def discard(self) -> None:
        """Gives its connections up, without waiting for that."""
        if self._control is not None:
            held: list[object] = [self._data, self._control]
            self._data = self._control = None
            drop(held)


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
    gradients by gloo on CPU and by NCCL on GPUs, where agreeing must not wait for the stream.
    """
    if size == 1:
        return Group(generation, 0, 1)
    control = gloo(store("control"), rank, size, host, threads=CONTROL_THREADS)
    if device.type == "cuda":
        data = nccl(store("data"), rank, size, device)
    else:
        data = gloo(store("data"), rank, size, host, threads=DATA_THREADS)
    return Group(generation, rank, size, control=control, data=data)


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

    options = ProcessGroupNCCL.Options()
    options._timeout = OPERATION
    group = ProcessGroupNCCL(store, rank, size, options)
    group.eager_connect_single_device(device)
    return cast(Collectives, group)


def agreed(values: Sequence[float], members: int) -> bool:
    """Returns whether all members said the same number: sum of squares and square of the sum."""
    total, squares = values
    return members * squares == total * total
