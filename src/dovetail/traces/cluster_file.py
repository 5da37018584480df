"""Reads a cluster from its short form `16x4`, or from a TOML file with groups, links and queues.

```toml
[[group]]
name = "v100"
nodes = 8
gpus_per_node = 8
gpu_type = "v100"
gpu_memory_gb = 32
cpus = 64
memory_gb = 512

[[link]]
name = "node"
gbit_per_s = 1200
nodes = 1

[[queue]]
name = "research"
quota_gpus = 32
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dovetail.core.cluster import DEFAULT_LINKS, GIB, Cluster, Link, NodeGroup, QueueSpec
from dovetail.core.errors import InputError, nearest

BYTES_PER_GBIT = 0.125e9

_GROUP = {
    "name": ("name", 1),
    "nodes": ("nodes", 1),
    "gpus_per_node": ("gpus_per_node", 1),
    "gpu_type": ("gpu_type", 1),
    "gpu_memory_gb": ("gpu_memory_bytes", GIB),
    "cpus": ("cpus", 1),
    "memory_gb": ("memory_bytes", GIB),
    "storage_gb_per_s": ("storage_bytes_per_s", 1e9),
}
_LINK = {
    "name": ("name", 1),
    "gbit_per_s": ("bandwidth_bytes_per_s", BYTES_PER_GBIT),
    "latency_us": ("latency_s", 1e-6),
    "nodes": ("nodes", 1),
}
_QUEUE = {
    "name": ("name", 1),
    "quota_gpus": ("quota_gpus", 1),
    "priority": ("priority", 1),
}
_TEXTS = {"name", "gpu_type"}
_WHOLE = {"nodes", "gpus_per_node", "quota_gpus"}


def read_cluster(text: str, memory_of: Callable[[str], float | None] = lambda _: None) -> Cluster:
    """Returns the cluster of a short form or of a TOML file. Raises InputError.

    `memory_of` returns the GPU memory of a GPU type in bytes, for groups that do not specify it.
    """
    if not text.endswith(".toml"):
        return Cluster.parse(text, memory_of)
    path = Path(text)
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(text, f"cannot be read as TOML: {error}") from None
    for key in table:
        if key not in ("group", "link", "queue"):
            raise InputError(
                text, f"unknown table '{key}'", nearest(key, ("group", "link", "queue"))
            )
    groups = [
        _group(_fields(text, "group", row, _GROUP, ("nodes", "gpus_per_node"), i), memory_of)
        for i, row in enumerate(_rows(text, table, "group"))
    ]
    links = [
        _link(_fields(text, "link", row, _LINK, ("gbit_per_s",), i))
        for i, row in enumerate(_rows(text, table, "link"))
    ]
    queues = [
        _queue(_fields(text, "queue", row, _QUEUE, ("name",), i))
        for i, row in enumerate(_rows(text, table, "queue"))
    ]
    if not groups:
        raise InputError(text, "it contains no [[group]] of nodes", "write at least one [[group]]")
    return Cluster(tuple(groups), tuple(links) or DEFAULT_LINKS, tuple(queues))


def _group(fields: Mapping[str, object], memory_of: Callable[[str], float | None]) -> NodeGroup:
    values: dict[str, Any] = {**fields}
    default_bytes = memory_of(str(fields.get("gpu_type", "")))
    if default_bytes is not None:
        values.setdefault("gpu_memory_bytes", default_bytes)
    return NodeGroup(**values)


def _link(fields: Mapping[str, object]) -> Link:
    values: dict[str, Any] = {**fields}
    return Link(**values)


def _queue(fields: Mapping[str, object]) -> QueueSpec:
    values: dict[str, Any] = {**fields}
    return QueueSpec(**values)


def _rows(text: str, table: Mapping[str, object], key: str) -> list[dict[str, object]]:
    rows = table.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise InputError(text, f"'{key}' must be a list of tables", f"write [[{key}]]")
    return rows


def _fields(
    text: str,
    kind: str,
    row: Mapping[str, object],
    known: Mapping[str, tuple[str, float]],
    required: tuple[str, ...],
    number: int,
) -> dict[str, object]:
    """Returns the checked fields of one table, in base units. Raises InputError."""
    where = f"{text}, {kind} {number + 1}"
    fields: dict[str, object] = {"name": f"{kind}{number}"}
    for key, value in row.items():
        if key not in known:
            raise InputError(where, f"unknown field '{key}'", nearest(key, known))
        name, unit = known[key]
        fields[name] = _value(where, key, value, unit)
    for key in required:
        if key not in row:
            raise InputError(where, f"field '{key}' is missing")
    return fields


def _value(where: str, key: str, value: object, unit: float) -> object:
    if key in _TEXTS:
        if not isinstance(value, str):
            raise InputError(where, f"field '{key}' must be a text, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InputError(where, f"field '{key}' must be a number of 0 or more, not {value!r}")
    if key in _WHOLE:
        if value != int(value):
            raise InputError(where, f"field '{key}' must be a whole number, not {value!r}")
        return int(value)
    return float(value) * unit
