"""Control groups of workers: on CPU slots a share of the cores as a weight, memory as a bound.

Versions 1 and 2, wherever the kernel lets us make groups below our own; elsewhere nothing is
enforced (`enforces`). A weight counts only under contention: any worker may use an idle core.
Every worker, on a GPU too, joins a group that bounds nothing and lists its processes (`tracking`):
what a worker forked is found there even if its keeper was killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
WHOLE_V1, WHOLE_V2 = 1024, 100
"""The kernel's own weights of a group that nobody has changed."""
WEIGHT_MAX_V1, WEIGHT_MAX_V2 = 1 << 18, 10_000
"""The largest weights it takes; a worker on several slots has the weight of each."""
SHARE, MEMORY = "share", "memory"
CONTROLLERS = "+cpu +memory"
PREFIX = "dovetail-"
"""Begins the name of the group of each cluster."""
SLACKS = (1.05, 1.1, 1.2, 1.5)
"""How many times what its processes hold a group gets, until the kernel takes that for a bound:
the kernel accounts memory of its own to them, and they may use more by then."""
LEFT_S = 3600.0
"""An empty group in which nothing has changed for so long was left by an agent that was killed."""


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """Groups below `cpu` and `memory` (None: cannot be enforced), in files of this `version`.

    Those below `tracking`, of either version, list processes and bound nothing.
    """

    version: int
    cpu: Path | None
    memory: Path | None
    tracking: Path | None = None

    @staticmethod
    def below_own(name: str, root: Path = ROOT) -> ControlGroups:
        """Returns the groups under a name below the group of this process, made if possible."""
        own = _own_groups()
        cpu, memory = (
            _made(root / controller / own.get(controller, "").lstrip("/") / name)
            for controller in ("cpu", "memory")
        )
        tracking = _tracking(root, own, name)
        # Version 1 goes first: a machine with both has its controllers there.
        if cpu or memory:
            return ControlGroups(1, cpu, memory, tracking)
        unified = root / own.get("", "").lstrip("/")
        if not (unified / "cgroup.controllers").exists():
            return ControlGroups(0, None, None, tracking)
        return replace(_version_2(unified, name), tracking=tracking)

    @staticmethod
    def sweep(root: Path = ROOT) -> None:
        """Removes what agents left, here and in sessions beside this one; none misses its group."""
        own = _own_groups()
        places = [root / name / own.get(name, "").lstrip("/") for name in ("cpu", "memory")]
        for place in [*places, *_tracking_places(root, own)]:
            for pattern in (f"{PREFIX}*", f"../*/{PREFIX}*"):
                for group in list(place.glob(pattern)):
                    _remove_left(group, time.time() - LEFT_S)

    @property
    def enforces(self) -> frozenset[str]:
        """Returns what is really enforced, of `SHARE` and `MEMORY`."""
        groups = ((SHARE, self.cpu), (MEMORY, self.memory))
        return frozenset(limit for limit, group in groups if group is not None)

    def make(self, key: str, share: float, memory_bytes: int) -> tuple[str, ...]:
        """Makes the groups of a worker; returns the files into which it writes itself."""
        files = self._join((self.cpu, self.memory, self.tracking), key)
        self.limit(key, share, memory_bytes)
        return files

    def track(self, key: str) -> tuple[str, ...]:
        """Makes the group that lists a worker's processes; returns the file to write itself to."""
        return self._join((self.tracking,), key)

    def _join(self, parents: Sequence[Path | None], key: str) -> tuple[str, ...]:
        joined = []
        for parent in dict.fromkeys(parents):
            if parent is not None and (group := self._group(parent, key)) is not None:
                joined.append(str(group / "cgroup.procs"))
        return tuple(joined)

    def _group(self, parent: Path, key: str) -> Path | None:
        """Returns the group of a worker; that of the cluster was swept if it was idle for long."""
        if _made(parent) is not None and self.version == 2 and parent in (self.cpu, self.memory):
            _write(parent / "cgroup.subtree_control", CONTROLLERS)
        return _made(parent / key)

    def limit(self, key: str, share: float, memory_bytes: int) -> None:
        """Sets the weight and the bound of a worker's groups; 0 bytes are no bound.

        A worker that has more than the bound already keeps it, and gets no more.
        """
        if self.cpu is not None:
            whole, name = (
                (WHOLE_V1, "cpu.shares") if self.version == 1 else (WHOLE_V2, "cpu.weight")
            )
            most = WEIGHT_MAX_V1 if self.version == 1 else WEIGHT_MAX_V2
            _write(self.cpu / key / name, str(min(most, max(2, round(share * whole)))))
        if self.memory is not None:
            self._bound(self.memory / key, memory_bytes)

    def _bound(self, group: Path, memory_bytes: int) -> None:
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        none = "-1" if self.version == 1 else "max"
        for slack in SLACKS:
            # NOTE: below what cannot be reclaimed version 1 refuses, and version 2 kills.
            held = int(slack * self._held_bytes(group))
            least = max(memory_bytes, held) if memory_bytes else 0
            if _write(group / name, str(least) if least else none):
                return

    def _held_bytes(self, group: Path) -> int:
        """Returns what the processes of a group hold that is no copy of a file."""
        try:
            lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
            counts = {name: int(count) for name, count in map(str.split, lines)}
        except (OSError, ValueError):
            return 0
        names = ("total_rss", "total_shmem") if self.version == 1 else ("anon", "shmem")
        return sum(counts.get(name, 0) for name in names)

    def ran_out_of_memory(self, key: str) -> bool:
        """True if the kernel killed a process of a worker for its memory."""
        if self.memory is None:
            return False
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        try:
            lines = (self.memory / key / name).read_text(encoding="ascii").splitlines()
        except OSError:
            return False
        counts = dict(line.split(maxsplit=1) for line in lines)
        return counts.get("oom_kill", "0").strip() != "0"

    def remove(self, key: str) -> None:
        """Removes the groups of a worker that is gone."""
        for parent in (self.cpu, self.memory, self.tracking):
            if parent is not None:
                _remove(parent / key)

    def close(self) -> None:
        """Removes the groups of all workers, if none is left in them."""
        for group in (self.cpu, self.memory, self.tracking):
            if group is not None:
                _remove(group)


def _own_groups() -> dict[str, str]:
    """Returns the group of this process by controller; version 2 has the empty name."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    own = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    return own


def _tracking_places(root: Path, own: Mapping[str, str]) -> list[Path]:
    """Returns the groups of this process below which a group bounds nothing, the best first."""
    unified, kept = own.get("", "").lstrip("/"), ("freezer", "pids")
    version_1 = [root / name / own[name].lstrip("/") for name in kept if name in own]
    return [root / unified, root / "unified" / unified, *version_1]


def _tracking(root: Path, own: Mapping[str, str], name: str) -> Path | None:
    """Returns the first group under a name that can be made to list processes."""
    places = [place for place in _tracking_places(root, own) if (place / "cgroup.procs").exists()]
    return next((group for place in places if (group := _made(place / name))), None)


def _version_2(unified: Path, name: str) -> ControlGroups:
    """Returns groups of version 2, with the controllers that are delegated to us."""
    _write(unified / "cgroup.subtree_control", CONTROLLERS)
    group = _made(unified / name)
    if group is None:
        return ControlGroups(0, None, None)
    _write(group / "cgroup.subtree_control", CONTROLLERS)
    with contextlib.suppress(OSError):
        delegated = (group / "cgroup.subtree_control").read_text(encoding="ascii").split()
        return ControlGroups(
            2, group if "cpu" in delegated else None, group if "memory" in delegated else None
        )
    return ControlGroups(0, None, None)


def _made(group: Path) -> Path | None:
    """Returns a group that is there now and takes processes of ours, None if it cannot be."""
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    return group if os.access(group / "cgroup.procs", os.W_OK) else None


def _remove_left(group: Path, before_s: float) -> None:
    """Removes a group that nobody has changed since then; one with processes in it stays."""
    with contextlib.suppress(OSError):
        if group.stat().st_mtime < before_s:
            _remove(group)


def _remove(group: Path) -> None:
    """Removes a group and those below it, as far as no process is in them."""
    with contextlib.suppress(OSError):
        for below in [p for p in group.iterdir() if p.is_dir()]:
            with contextlib.suppress(OSError):
                below.rmdir()
        group.rmdir()


def _write(file: Path, value: str) -> bool:
    with contextlib.suppress(OSError):
        file.write_text(value, encoding="ascii")
        return True
    return False
