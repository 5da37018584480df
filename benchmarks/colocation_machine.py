"""The four resources that co-located processes share here, as real as the machine allows.

- storage: reads with O_DIRECT of a file, at the rate of one slow disk: each read reserves time on
  the disk, so readers alternate. The kernel's own throttle (blkio, io.max) forgives what was not
  used in up to 0.1 s, so it would not slow a stage of 20 ms.
- CPU: one core, for the loaders.
- compute: the other core, in place of a GPU; a limit is the real-time quota of a control group.
- network: a pair of network namespaces joined by veth, with a token-bucket filter each way.

All that is measured has real-time priority, so other work gets what is left of the cores.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Lock
from pathlib import Path

import numpy as np

HOST_CORE, COMPUTE_CORE = 0, 1
CHUNK_BYTES = 1 << 17
CHUNKS = 256
DISK_BYTES_PER_S = 100e6
LINK = "400mbit"
SIDE = 256
"""Pixels of an image's side; a chunk holds one compressed image of three colours."""
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
QUANTUM = Path("/proc/sys/kernel/sched_rr_timeslice_ms")
QUANTUM_MS = 4
"""A timer's tick of many kernels; GPUs switch between processes after some 2 ms."""
LOOPS_FIRST, DEVICES_FIRST = 1, 2
"""Priorities: packets and reads before loops, as network cards and disks need no core."""
PERIOD_S = 0.010
"""Of a limit: a third of an iteration, so that it slows each one."""
CLONE_NEWNET = 0x40000000
PR_SET_TIMERSLACK = 29


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the processes of members find the resources.

    `namespaces` are those of trainers and of peers, `group` is the control group for a limit.
    """

    samples: Path
    place: Path
    namespaces: tuple[str, str]
    group: Path

    @contextmanager
    def limit(self, thread: int, share: float) -> Iterator[None]:
        """Lets a thread use a share of a core in each period."""
        (self.group / "cpu.rt_runtime_us").write_text(str(round(share * PERIOD_S * 1e6)))
        (self.group / "tasks").write_text(str(thread))
        try:
            yield
        finally:
            (CPU_GROUPS / "tasks").write_text(str(thread))


@contextmanager
def limited_group() -> Iterator[Path]:
    """Gives the control group of whoever is limited; a name only where there are no limits."""
    group = CPU_GROUPS / f"dovetail-colocation-{os.getpid()}"
    if why_no_limits():
        yield group
        return
    group.mkdir()
    try:
        (group / "cpu.rt_period_us").write_text(str(round(PERIOD_S * 1e6)))
        yield group
    finally:
        # A group that is removed holds its part of the cores until the kernel forgets it.
        (group / "cpu.rt_runtime_us").write_text("0")
        group.rmdir()


def come_first(priority: int) -> None:
    """Puts the calling thread, and those it will start, before all that is not measured.

    Threads of one priority take turns on a core, each for `QUANTUM_MS`. Sleeps end within 1 us.
    """
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000)
    if (CPU_GROUPS / "tasks").exists():  # elsewhere the group at the root has no such quota
        (CPU_GROUPS / "tasks").write_text(str(thread_id()))
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


def why_not() -> str:
    """Returns why the resources cannot be had here, or nothing."""
    if (os.cpu_count() or 1) < 2:
        return "two cores are needed"
    if os.geteuid():
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found: install iproute2" if missing else ""


def why_no_limits() -> str:
    """Returns why nobody can be limited here, or nothing."""
    if (CPU_GROUPS / "cpu.rt_runtime_us").exists():
        return ""
    return "they need control groups of version 1 with real-time quotas"


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Gives the resources, with the samples in a folder on a real disk; takes them away."""
    with tempfile.TemporaryDirectory(prefix="colocation", dir=folder) as place:
        samples = Path(place) / "samples"
        write_samples(samples)
        # The longest name of a device has 15 characters.
        near, far = f"dv{os.getpid()}n", f"dv{os.getpid()}f"
        try:
            join_namespaces(near, far)
            with quantum(QUANTUM_MS), limited_group() as group:
                yield Machine(samples, Path(place), (near, far), group)
        finally:
            for name in (near, far):
                if Path("/run/netns", name).exists():
                    command("ip", "netns", "del", name)


@contextmanager
def quantum(quantum_ms: int) -> Iterator[None]:
    """Sets the time after which threads of one priority take turns, for the machine."""
    before = QUANTUM.read_text()
    QUANTUM.write_text(str(quantum_ms))
    try:
        yield
    finally:
        QUANTUM.write_text(before)


def write_samples(path: Path) -> None:
    """Writes images of smooth noise, each compressed into a chunk of its own."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(CHUNKS):
            noise = rng.integers(0, 16, (SIDE, SIDE, 3), dtype=np.uint8)
            slope = np.arange(SIDE, dtype=np.uint8)[:, None, None] // 2
            packed = zlib.compress((noise + slope).tobytes(), 1)
            head = len(packed).to_bytes(4, "little")
            assert len(packed) + len(head) <= CHUNK_BYTES, "an image fits its chunk"
            file.write((head + packed).ljust(CHUNK_BYTES, b"\0"))
        file.flush()
        os.fsync(file.fileno())


# Network.


def join_namespaces(near: str, far: str) -> None:
    """Makes two namespaces with a slow link between them."""
    for name in (near, far):
        command("ip", "netns", "add", name)
    peer = ("peer", "name", far, "netns", far)
    command("ip", "link", "add", near, "netns", near, "type", "veth", *peer)
    for number, name in enumerate((near, far), 1):
        inside = ("ip", "-n", name)
        command(*inside, "addr", "add", f"10.99.7.{number}/30", "dev", name)
        command(*inside, "link", "set", name, "up")
        command(*inside, "link", "set", "lo", "up")
        shape = ("root", "tbf", "rate", LINK, "burst", "32kb", "limit", "8mb")
        # A sender that waits for a delayed acknowledgement does so for 8 ms or more.
        command(*inside, "route", "change", "10.99.7.0/30", "dev", name, "quickack", "1")
        command("tc", "-n", name, "qdisc", "add", "dev", name, *shape)


def command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


# What a process does at its start.


def enter_namespace(name: str) -> None:
    """Moves the calling thread, and those it will start, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


@contextmanager
def device() -> Iterator[None]:
    """Lets this thread work for a device."""
    os.sched_setparam(0, os.sched_param(DEVICES_FIRST))
    try:
        yield
    finally:
        os.sched_setparam(0, os.sched_param(LOOPS_FIRST))


def thread_id() -> int:
    return int(Path("/proc/thread-self").readlink().name)


# Storage.


class Disk:
    """A disk of one head, shared by processes: reads take their time one after the other."""

    def __init__(self, context: SpawnContext) -> None:
        self._lock: Lock = context.Lock()
        self._idle_from_s = context.RawValue("d", 0.0)

    def reserve(self, size_bytes: int) -> float:
        """Returns the time at which a read of so many bytes that begins now will be done."""
        with self._lock:
            starts_s = max(time.monotonic(), self._idle_from_s.value)
            self._idle_from_s.value = starts_s + size_bytes / DISK_BYTES_PER_S
            return float(self._idle_from_s.value)


class SampleReader:
    """Reads chunks of the sample file past the page cache."""

    def __init__(self, path: Path, disk: Disk, first: int) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._disk, self._next = disk, first % CHUNKS
        # O_DIRECT demands memory that begins at a page.
        self._memory = mmap.mmap(-1, CHUNK_BYTES)

    def read(self, count: int) -> list[bytes]:
        """Returns the next chunks."""
        return [self._chunk() for _ in range(count)]

    def _chunk(self) -> bytes:
        done_s = self._disk.reserve(CHUNK_BYTES)
        os.preadv(self._file, [self._memory], self._next * CHUNK_BYTES)
        chunk = self._memory[:]
        # A stride that is prime to the number of chunks visits all of them.
        self._next = (self._next + 97) % CHUNKS
        if (left_s := done_s - time.monotonic()) > 0:
            time.sleep(left_s)
        return chunk
