"""The nodes that have joined a cluster, by number, with what they have: kept for later controllers.

A number stands for the same machine as long as any job is under way, whatever engine brought it and
in whatever order: records of jobs have numbers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from time import monotonic

from dovetail.core.cluster import DEFAULT_LINKS, Cluster, NodeGroup
from dovetail.core.errors import DovetailError, InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.wire.codec import WireError, build
from dovetail.wire.join import Join, JoinRefused, NodeDevices, folder_of

GPUS_MAX, NAME_MAX, SIZE_MAX = 1024, 100, 1e18
FOLDERS = "folders.json"
CHANGE_S = 60.0
"""How long a node keeps the devices that it said: others start the controller anew."""


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """A node by the name that it joined under, and what its agent said it has."""

    name: str
    devices: NodeDevices


class NodeRegistry:
    """The nodes of a cluster. For several threads.

    It also knows the folder of each node's agent. The inventory of an agent with another folder
    lacks the workers of the agent before it, which may live. So the registry admits such an agent
    only when the node `is_lost`.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._path, self._clock = path, clock
        self._changed_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._expected: frozenset[str] = frozenset()
        self._nodes = _stored(path)
        self._taken = self._nodes
        self._folders = _stored_folders(path.with_name(FOLDERS))
        self.on_change: Callable[[], None] = lambda: None
        self.is_lost: Callable[[int], bool] = lambda number: False

    @property
    def has_any(self) -> bool:
        """True if any node has joined."""
        return bool(self._nodes)

    @property
    def nodes(self) -> tuple[RegistryEntry, ...]:
        """Returns the nodes of the cluster as it was last taken, by number."""
        return self._taken

    @property
    def has_changed(self) -> bool:
        """True if nodes have joined since, or have other devices."""
        return self._nodes != self._taken

    def expect(self, names: Collection[str], *, keeps: bool) -> None:
        """Admits nodes of these names from now on; without `keeps` it forgets all others."""
        with self._lock:
            self._expected = frozenset(names)
            if not keeps:
                # No job is under way.
                self._folders = {}
                self._nodes = tuple(n for n in self._nodes if n.name in self._expected)

    def expect_also(self, names: Collection[str]) -> None:
        """Admits further nodes from now on."""
        with self._lock:
            self._expected |= frozenset(names)

    def missing(self) -> list[str]:
        """Returns the expected nodes that have never joined."""
        return sorted(self._expected - {node.name for node in self._nodes})

    def take(self) -> Cluster:
        """Returns the cluster of the nodes that have joined so far. Raises DovetailError."""
        with self._lock:
            self._taken = self._nodes
        return _cluster_of(self._taken)

    def admit(self, join: Join) -> int | JoinRefused:
        """Returns the number of a node that joins, a new one if it is new."""
        with self._lock:
            if join.node not in self._expected:
                return JoinRefused("it is no node of this cluster", "add it to the engine's nodes")
            if why := _fault_of(join.devices):
                return JoinRefused(why, "see the GPUs of that machine, or --slots")
            names = [node.name for node in self._nodes]
            number = names.index(join.node) if join.node in names else len(names)
            if refused := self._refused_for_folder(join, number):
                return refused
            node = RegistryEntry(join.node, join.devices)
            nodes = (*self._nodes[:number], node, *self._nodes[number + 1 :])
            if nodes != self._nodes:
                return self._change(nodes, number)
            return number

    def _refused_for_folder(self, join: Join, number: int) -> JoinRefused | None:
        """Returns why an agent with another folder is not admitted; notes that of one who is."""
        folder, last = folder_of(join.incarnation), self._folders.get(join.node, "")
        if not folder or folder == last:
            return None
        if last and not self.is_lost(number):
            why = "jobs of its agent with another --folder, or on another machine, may still run"
            return JoinRefused(why, "start it with that folder, or wait until the node is lost")
        folders = {**self._folders, join.node: folder}
        try:
            write_whole(self._path.with_name(FOLDERS), json.dumps(folders), mode=PRIVATE)
        except OSError as error:
            return JoinRefused(f"it cannot be stored: {error.strerror}", "free space on the disk")
        self._folders = folders
        return None

    def _change(self, nodes: tuple[RegistryEntry, ...], number: int) -> int | JoinRefused:
        """Takes up a new node, or other devices of one that is known."""
        name, now_s = nodes[number].name, self._clock()
        if now_s - self._changed_s.get(name, -CHANGE_S) < CHANGE_S:
            why = "it said other devices a moment ago"
            return JoinRefused(why, f"its agent is admitted {CHANGE_S:g} s after that")
        try:
            self._store(nodes)
        except OSError as error:
            return JoinRefused(f"it cannot be stored: {error.strerror}", "free space on the disk")
        if number < len(self._nodes):
            self._changed_s[name] = now_s
        self._nodes = nodes
        self.on_change()
        return number

    def _store(self, nodes: tuple[RegistryEntry, ...]) -> None:
        content = f"[{', '.join(map(_text, nodes))}]"
        write_whole(self._path, content, mode=PRIVATE)


def _fault_of(devices: NodeDevices) -> str:
    """Returns what cannot be of the devices of a node, empty for nothing."""
    names = devices.names
    if not 1 <= len(names) <= GPUS_MAX:
        return f"it has {len(names)} GPUs"
    if len(set(names)) < len(names):
        return "two of its GPUs have one name"
    texts = (devices.gpu_type, *names)
    if not all(text.isprintable() and 0 < len(text) <= NAME_MAX for text in texts):
        return "a name of its GPUs is no word"
    sizes = (devices.gpu_memory_bytes, devices.cpus, devices.memory_bytes)
    if not all(0 <= size <= SIZE_MAX for size in sizes):
        return "it has more, or less, than a machine can have"
    return ""


@lru_cache(maxsize=1 << 14)
def _text(node: RegistryEntry) -> str:
    """Returns a node as the file has it.

    NOTE: the file is written for each new node: without this 1,000 nodes that join for the first
    time took 13 s of CPU.
    """
    return json.dumps(asdict(node))


def _stored(path: Path) -> tuple[RegistryEntry, ...]:
    """Returns the nodes in a file. Raises InputError if it is damaged: numbers would be lost."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        for row in rows:
            row["devices"]["names"] = list(row["devices"]["names"])
        return tuple(build(RegistryEntry, row) for row in rows)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, WireError) as error:
        mend = "put back a copy; if no job is under way, remove it: nodes join anew"
        raise InputError(str(path), f"cannot be read: {error}", mend) from None


def _stored_folders(path: Path) -> dict[str, str]:
    """Returns the folders of the nodes' agents. Raises InputError if the file is damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(folder) for name, folder in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        mend = "put back a copy; if no job is under way, remove it"
        raise InputError(str(path), f"cannot be read: {error}", mend) from None


def _cluster_of(nodes: tuple[RegistryEntry, ...]) -> Cluster:
    """Returns a cluster with a group for each run of nodes that are alike."""
    groups: list[NodeGroup] = []
    for node in nodes:
        have = node.devices
        one = NodeGroup(
            have.gpu_type,
            1,
            len(have.names),
            gpu_type=have.gpu_type,
            gpu_memory_bytes=have.gpu_memory_bytes,
            cpus=have.cpus,
            memory_bytes=have.memory_bytes,
        )
        if groups and replace(groups[-1], nodes=1) == one:
            groups[-1] = replace(one, nodes=groups[-1].nodes + 1)
        else:
            groups.append(one)
    if not groups:
        raise DovetailError("no node has joined")
    return Cluster(tuple(groups), DEFAULT_LINKS)
