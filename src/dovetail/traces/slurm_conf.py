"""Reads slurm.conf: its settings, its nodes with GPUs, and its partitions.

Lines are `Key=Value ...`; names ignore case, `#` begins a comment, `\\` at the end continues a
line. `NodeName=DEFAULT` and `PartitionName=DEFAULT` give values to the lines behind them.

Source: slurm.conf(5) of Slurm 22.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dovetail.core.errors import InputError

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_GPU = re.compile(r"gpu(?::(?P<type>[\w.-]+))??(?::(?P<count>\d+))?(?:\(.*)?", re.ASCII)
"""One generic resource of a node: `gpu`, `gpu:4`, `gpu:a100`, `gpu:2080ti:8(S:0-1)`."""
_PART = re.compile(r"([^,\[]*)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)")
KINDS = ("nodename", "partitionname")


@dataclass(frozen=True, slots=True)
class ConfNode:
    """A node of slurm.conf."""

    name: str
    gpus: int
    gpu_type: str
    cpus: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition of slurm.conf; `values` by key in lower case."""

    name: str
    nodes: tuple[str, ...]
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """A slurm.conf. The keys of `settings` are in lower case."""

    settings: Mapping[str, str]
    nodes: tuple[ConfNode, ...]
    partitions: tuple[SlurmPartition, ...]
    future: tuple[str, ...] = ()
    """Nodes with State=FUTURE, which do not exist yet; they are not among the others."""

    def items_of(self, key: str) -> list[str]:
        """Returns the parts of a setting that is a list with commas."""
        return [part for part in self.settings.get(key.lower(), "").split(",") if part]


def hosts(text: str) -> list[str]:
    """Returns the names of a host list such as `n[1-3,07],login`."""
    names: list[str] = []
    for match in _PART.finditer(text):
        before, inside, behind = match[1], match[2], match[3]
        if inside is None:
            names += [before] if before else []
            continue
        for piece in inside.split(","):
            first, dash, last = piece.partition("-")
            numbers = range(int(first), int(last if dash else first) + 1)
            names += [f"{before}{number:0{len(first)}}{behind}" for number in numbers]
    return names


def read_slurm_conf(file: str, text: str) -> SlurmConf:
    """Returns what a slurm.conf says. Raises InputError."""
    settings: dict[str, str] = {}
    defaults: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    rows: dict[str, list[tuple[str, dict[str, str]]]] = {kind: [] for kind in KINDS}
    for number, line in _lines(text):
        if line.lower().startswith("include"):
            where = f"{file}, line {number}"
            raise InputError(where, "it includes another file", "put its lines in this one")
        pairs = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        kind = next((kind for kind in KINDS if kind in pairs), "")
        if not kind:
            settings |= pairs
        elif pairs[kind].upper() == "DEFAULT":
            defaults[kind] |= pairs
        else:
            rows[kind].append((f"{file}, line {number}", {**defaults[kind], **pairs}))
    nodes, future = _existing(rows["nodename"])
    if not any(node.gpus for node in nodes):
        raise InputError(file, "no node has GPUs", "its NodeName lines need Gres=gpu:...")
    known = [node.name for node in nodes]
    partitions = [
        _partition(where, row, known, future, defaults["partitionname"])
        for where, row in rows["partitionname"]
    ]
    return SlurmConf(settings, tuple(nodes), tuple(partitions), future)


def _existing(
    rows: Sequence[tuple[str, Mapping[str, str]]],
) -> tuple[list[ConfNode], tuple[str, ...]]:
    """Returns the nodes that exist, and the names of those that do not yet."""
    nodes: list[ConfNode] = []
    future: list[str] = []
    for where, row in rows:
        if row.get("state", "").upper() == "FUTURE":
            future += _hosts(where, row["nodename"])
        else:
            nodes += _nodes(where, row)
    return nodes, tuple(future)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines with their numbers, without comments, those that continue as one."""
    joined, began = "", 1
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].strip()
        began = began if joined else number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        joined += line
        if joined:
            yield began, joined
        joined = ""


def _nodes(where: str, row: Mapping[str, str]) -> Iterator[ConfNode]:
    gpus, kinds = 0, set[str]()
    for gres in row.get("gres", "").split(","):
        match = _GPU.fullmatch(gres.strip())
        if match is not None:
            gpus += int(match["count"] or 1)
            kinds.add((match["type"] or "").lower())
    if len(kinds) > 1:
        raise InputError(where, f"its nodes have several types of GPUs: {', '.join(sorted(kinds))}")
    for name in _hosts(where, row["nodename"]):
        yield ConfNode(
            name,
            gpus,
            next(iter(kinds), ""),
            _cpus(where, row),
            _number(where, row, "realmemory", 0.0),
        )


def _cpus(where: str, row: Mapping[str, str]) -> float:
    if "cpus" in row or "procs" in row:
        return _number(where, row, "cpus" if "cpus" in row else "procs", 0.0)
    sockets = _number(where, row, "sockets", _number(where, row, "boards", 1.0))
    cores = _number(where, row, "corespersocket", 0.0)
    return sockets * cores * _number(where, row, "threadspercore", 1.0)


def _number(where: str, row: Mapping[str, str], key: str, default: float) -> float:
    try:
        return float(row.get(key, default))
    except ValueError:
        raise InputError(where, f"'{key}' must be a number, not '{row[key]}'") from None


def _hosts(where: str, text: str) -> list[str]:
    try:
        return hosts(text)
    except ValueError:
        raise InputError(where, f"'{text}' is no list of nodes", "as in n[1-4],login") from None


def _partition(
    where: str,
    row: Mapping[str, str],
    known: Sequence[str],
    future: Sequence[str],
    defaults: Mapping[str, str],
) -> SlurmPartition:
    wanted = row.get("nodes", "ALL")
    names = list(known) if wanted.upper() == "ALL" else _hosts(where, wanted)
    names = [name for name in names if name not in future]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(where, f"node '{unknown[0]}' has no NodeName line")
    return SlurmPartition(row["partitionname"], tuple(names), {**defaults, **row})
