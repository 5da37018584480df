"""The process group of a generation: collectives and messages among its workers.

Only this module constructs process groups. No wait in it is unbounded: every `WAIT_SLICE`, a wait
checks whether to give up. The training thread never destroys a group, since that may block.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast

import torch
from torch.distributed.distributed_c10d import ProcessGroup, Store, Work

from dovetail.train.process.background import dispose, submit

WAIT_SLICE = timedelta(milliseconds=100)
OPERATION_TIMEOUT = timedelta(minutes=30)
"""Torch's own timeout of an operation; the `WaitPolicy` gives up earlier."""
CONNECT_TIMEOUT = timedelta(seconds=60)
"""Time for a worker that has joined to connect: it may get no CPU for a while."""
CONTROL_THREADS, DATA_THREADS = 2, 2
DISCARD_DELAY_S = 0.25
"""How long a group on GPUs outlives its last operation. A kernel of another worker may still read
memory of this one, and nothing on the host shows when that kernel has ended."""
RELEASE_TIMEOUT_S = 30.0
"""How long an aborted operation may take to release its buffers."""
NCCL_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
"""Turns off torch's watchdog of NCCL: it would end the process when another worker is gone."""


class GroupBroken(Exception):
    """The generation cannot continue: a collective failed, or the generation was abandoned."""


class OperationStuck(Exception):
    """A GPU still executes an aborted operation, so this process cannot continue."""


class Operation(Protocol):
    """A pending operation."""

    def wait(self) -> None:
        """Waits until the operation is complete. Raises GroupBroken if it cannot complete."""


class CompletedOperation:
    """An operation with nothing to wait for."""

    def wait(self) -> None:
        """Returns at once."""

    def wait_released(self) -> bool:
        """Returns whether an abandoned group no longer uses the buffer: True, there is none."""
        return True


COMPLETED = CompletedOperation()


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """Decides when a wait within a generation gives up, and when it reports a stall.

    `gives_up` returns a reason to give up, or None. `stalls` is called in waits above `stall_s`.
    """

    gives_up: Callable[[], str | None]
    stalls: Callable[[str], None]
    stall_s: float

    def look(self, since_s: float, what: str) -> None:
        """Raises GroupBroken if there is a reason to give up; reports a wait above `stall_s`."""
        # First the reasons to give up: a wait that ends anyway is not worth a report.
        why = self.gives_up()
        if why is not None:
            raise GroupBroken(why)
        waited_s = time.monotonic() - since_s
        if waited_s > self.stall_s:
            self.stalls(f"stalled: {what} for {waited_s:.0f} s")


PATIENT = WaitPolicy(gives_up=lambda: None, stalls=lambda _: None, stall_s=math.inf)
"""The policy of a group that no worker has entered yet."""


class PendingCollective:
    """A pending collective on the CPU."""

    def __init__(self, work: Work, patience: WaitPolicy, what: str) -> None:
        self._work, self._patience, self._what = work, patience, what

    def wait(self) -> None:
        """Waits until the operation is complete on this worker. Raises GroupBroken."""
        since_s = time.monotonic()
        while True:
            try:
                self._work.wait(WAIT_SLICE)
                break
            except RuntimeError:
                # A timeout and a failure raise the same error. A completed operation has failed, or
                # has finished just after the slice; the second wait tells which.
                if self._work.is_completed():
                    self._end()
                    break
            self._patience.look(since_s, self._what)

    def wait_released(self) -> bool:
        """Returns whether the operation has ended: a gloo operation cannot be aborted."""
        return bool(self._work.is_completed())

    def _end(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise GroupBroken(f"{self._what}: {first_line(error)}") from None


class PendingMessage:
    """A pending message between two workers. The wait has no slices: never on the main thread.

    NOTE: gloo treats a timeout while waiting for a message as a failure of the whole group.
    """

    def __init__(self, work: Work, what: str) -> None:
        self._work, self._what = work, what

    def wait(self) -> None:
        """Waits until the message is transferred. Raises GroupBroken."""
        try:
            self._work.wait(OPERATION_TIMEOUT)
        except RuntimeError as error:
            raise GroupBroken(f"{self._what}: {first_line(error)}") from None


class PendingDeviceCollective(PendingCollective):
    """A collective on a GPU, polled: its own `wait` would only order streams, not wait for it."""

    def wait(self) -> None:
        """Polls until the operation is complete. Raises GroupBroken."""
        since_s, next_look_s = time.monotonic(), time.monotonic() + WAIT_SLICE.total_seconds()
        while not self._work.is_completed():
            if time.monotonic() > next_look_s:
                next_look_s += WAIT_SLICE.total_seconds()
                self._patience.look(since_s, self._what)
            # Polling holds back the step by 0.1 ms at most, and leaves the CPU to the other
            # threads.
            time.sleep(0.0001)
        self._patience.look(since_s, self._what)  # an aborted operation looks complete
        self._end()

    def wait_released(self) -> bool:
        """Waits until the GPU has ended the aborted operation. Raises OperationStuck."""
        give_up_s = time.monotonic() + RELEASE_TIMEOUT_S
        while not self._work.is_completed():
            if time.monotonic() > give_up_s:
                raise OperationStuck(
                    f"{self._what}: NCCL did not end within {RELEASE_TIMEOUT_S:g} s of its abort"
                )
            time.sleep(0.001)
        return True


SumOperation = CompletedOperation | PendingCollective
"""A sum over a gradient buffer."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class WorkerGroup:
    """The workers of one generation, as seen by one of them; a group of one has no connections."""

    def __init__(
        self,
        generation: int,
        rank: int,
        size: int,
        *,
        control: ProcessGroup | None = None,
        data: ProcessGroup | None = None,
        by_nccl: bool = False,
    ) -> None:
        self.generation, self.rank, self.size = generation, rank, size
        self._control, self._data, self._by_nccl = control, data, by_nccl
        self.patience = PATIENT

    # No local variable or closure below holds a process group: the traceback of an error would keep
    # it, and the training thread would destroy it when it drops the error.

    def sum_control(self, values: torch.Tensor) -> SumOperation:
        """Sums small CPU tensors over all workers, in place."""
        if self._control is None:
            return COMPLETED
        return self._pending(lambda: _open(self._control).allreduce([values]), "step agreement")

    def sum_gradients(self, flat: torch.Tensor) -> SumOperation:
        """Sums gradients over all workers, in place."""
        if self._data is None:
            return COMPLETED
        kind = PendingDeviceCollective if self._by_nccl else PendingCollective
        return self._pending(lambda: _open(self._data).allreduce([flat]), "gradients", kind)

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all workers, by rank. Raises GroupBroken."""
        if self._control is None:
            return row.unsqueeze(0).clone()
        rows = [torch.empty_like(row) for _ in range(self.size)]
        self._pending(lambda: _open(self._control).allgather([rows], [row]), "entering").wait()
        return torch.stack(rows)

    def _pending(
        self,
        call: Callable[[], Work],
        what: str,
        kind: type[PendingCollective] = PendingCollective,
    ) -> PendingCollective:
        return kind(start_operation(call, what), self.patience, what)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Operation:
        """Sends a CPU tensor to one worker."""
        what = "sending state"
        work = start_operation(lambda: _open(self._control).send([tensor], to, tag), what)
        return PendingMessage(work, what)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Operation:
        """Receives a CPU tensor from one worker, in place."""
        what = "receiving state"
        work = start_operation(lambda: _open(self._control).recv([tensor], source, tag), what)
        return PendingMessage(work, what)

    def abandon(self) -> None:
        """Aborts pending GPU operations, from any thread: the main thread may block in one."""
        # Only NCCL: a gloo operation blocks no GPU, and waits for it give up by themselves.
        data = self._data
        if data is not None and self._by_nccl:
            dispose([], lambda: abort(data))

    def discard(self, *, broken: bool = False) -> None:
        """Closes the connections in the background."""
        if self._control is None or self._data is None:
            return
        # Destructors of process groups join threads and may block on a dead peer. The disposal
        # thread runs them; here only references are dropped.
        data, groups = self._data, [self._data, self._control]
        self._data = self._control = None
        if self._by_nccl:
            # Another worker may still be in the last operation. A broken group is aborted at once,
            # so that workers that hang in it notice.
            dispose([*groups], lambda: abort(data), after_s=0.0 if broken else DISCARD_DELAY_S)
        else:
            dispose([*groups])


def _open(group: ProcessGroup | None) -> ProcessGroup:
    if group is None:
        raise RuntimeError("the group is closed")
    return group


def abort(group: ProcessGroup) -> None:
    """Aborts the pending operations of a group and releases what it holds on a GPU."""
    with suppress(RuntimeError):  # a timeout; `wait_released` finds out whether buffers are free
        group.abort()


def start_operation(call: Callable[[], Work], what: str) -> Work:
    """Starts an operation and returns it. Raises GroupBroken."""
    try:
        return call()
    except RuntimeError as error:
        raise GroupBroken(f"{what}: {first_line(error)}") from None


def connect(
    store: Callable[[str], Store],
    *,
    generation: int,
    rank: int,
    size: int,
    host: str,
    device: torch.device,
) -> WorkerGroup:
    """Connects the workers of a generation, all of which have joined. Raises RuntimeError.

    `store` returns the rendezvous store under a prefix. Agreements and state always use gloo.
    Gradients use NCCL if each worker has a GPU of its own, else gloo. Agreements stay off NCCL
    because they must not wait for its stream.
    """
    # All workers connect in this order. Each call waits for all the others to make the same one.
    control = gloo(store("control"), rank, size, host, threads=CONTROL_THREADS)
    by_nccl = device.type == "cuda" and have_separate_gpus(store("devices"), rank, size, device)
    if by_nccl:
        data = nccl(store("data"), rank, size, device)
    else:
        data = gloo(store("data"), rank, size, host, threads=DATA_THREADS)
    return WorkerGroup(generation, rank, size, control=control, data=data, by_nccl=by_nccl)


def have_separate_gpus(store: Store, rank: int, size: int, device: torch.device) -> bool:
    """Returns whether no two workers share a GPU or parts of one, which NCCL refuses.

    Every worker gets the same answer. Raises RuntimeError.
    """
    # `get` waits for a worker that has not written yet, so all compare the same locations.
    store.set(str(rank), gpu_location(device))
    return len({store.get(str(one)) for one in range(size)}) == size


def gpu_location(device: torch.device) -> str:
    """Returns the host and PCI address of a GPU; the instances (MIG) of a GPU have the same one."""
    about = torch.cuda.get_device_properties(device)
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    place = [str(getattr(about, name)) for name in names if hasattr(about, name)]
    return "/".join((socket.gethostname(), *(place or [str(about.uuid)])))


def gloo(store: Store, rank: int, size: int, host: str, *, threads: int) -> ProcessGroup:
    """Returns a process group over TCP that listens on `host` only."""
    from torch.distributed import ProcessGroupGloo

    # Private options: the public constructor does not take the address to listen on.
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    options._timeout = CONNECT_TIMEOUT
    options._threads = threads
    group = ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(OPERATION_TIMEOUT)
    return cast(ProcessGroup, group)


def nccl(store: Store, rank: int, size: int, device: torch.device) -> ProcessGroup:
    """Returns a process group over NCCL that is connected now, not at its first operation."""
    from torch.distributed import ProcessGroupNCCL

    os.environ.update(NCCL_ENVIRONMENT)  # NCCL groups read it when they are constructed
    options = ProcessGroupNCCL.Options()
    options._timeout = OPERATION_TIMEOUT
    group = ProcessGroupNCCL(store, rank, size, options)
    # Otherwise the first gradient would connect, and a training step would wait for it.
    run_within(CONNECT_TIMEOUT, lambda: group.eager_connect_single_device(device))
    return cast(ProcessGroup, group)


def run_within(limit: timedelta, connect: Callable[[], None]) -> None:
    """Runs `connect` on a thread and abandons it after `limit`. Raises RuntimeError.

    NOTE: NCCL waits without end for a worker that died while connecting, and cannot be interrupted.
    """
    try:
        submit("connect", connect).result(limit.total_seconds())
    except TimeoutError:
        raise RuntimeError(f"NCCL did not connect within {limit.total_seconds():g} s") from None


def agreed(values: Sequence[float], members: int) -> bool:
    """Returns whether all workers reported the same number, from sum of squares and squared sum."""
    total, squares = values
    # Cauchy-Schwarz: equality holds only if all summands are equal. So one allreduce of two numbers
    # is enough to agree; generations are small integers, exact in float64.
    return members * squares == total * total
