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
price_per_gpu_h = 2.10

[[link]]
name = "node"
gbit_per_s = 1200
nodes = 1

[[queue]]
name = "research"
quota_gpus = 32
groups = ["v100"]  # the nodes where its jobs may run; without it all
```

Queues, accounts, QOS, reservations and maintenance: `traces.tenants_file`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from dovetail.core.cluster import DEFAULT_LINKS, GIB, Cluster, Link, NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.traces.tenants_file import EPOCH, KINDS, Seconds, read_tenants

BYTES_PER_GBIT = 0.125e9

_FIELDS: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "group": {
        "name": ("name", 1),
        "nodes": ("nodes", 1),
        "gpus_per_node": ("gpus_per_node", 1),
        "gpus_per_island": ("gpus_per_island", 1),
        "gpu_type": ("gpu_type", 1),
        "gpu_memory_gb": ("gpu_memory_bytes", GIB),
        "cpus": ("cpus", 1),
        "memory_gb": ("memory_bytes", GIB),
        "storage_gb_per_s": ("storage_bytes_per_s", 1e9),
        "price_per_gpu_h": ("price_per_gpu_h", 1),
    },
    "link": {
        "name": ("name", 1),
        "gbit_per_s": ("bandwidth_bytes_per_s", BYTES_PER_GBIT),
        "latency_us": ("latency_s", 1e-6),
        "nodes": ("nodes", 1),
    },
}
"""The fields of each kind of table: the name in the code, and the unit over the base unit."""
_REQUIRED = {"group": ("nodes", "gpus_per_node"), "link": ("gbit_per_s",)}
_TEXTS = {"name", "gpu_type"}
_WHOLE = {"nodes", "gpus_per_node", "gpus_per_island"}


def read_cluster(text: str, memory_of: Callable[[str], float | None] = lambda _: None) -> Cluster:
    """Returns the cluster of a short form or of a TOML file. Raises InputError.

    `memory_of` returns the GPU memory of a GPU type in bytes, for groups that do not specify it.
    """
    if not text.endswith(".toml"):
        return Cluster.parse(text, memory_of)
    table = _read(text)
    if not table.get("group"):
        raise InputError(text, "it contains no [[group]] of nodes", "write at least one [[group]]")
    groups = _groups(text, table, memory_of)
    tenants = read_tenants(text, table, groups)
    return Cluster(
        groups,
        _links(text, table) or DEFAULT_LINKS,
        tenants.queues,
        tenants.accounts,
        tenants.qos,
        tenants.reservations,
        users=tenants.users,
    )


def with_tenants(cluster: Cluster, text: str, seconds: Seconds) -> Cluster:
    """Returns a live cluster with the tenants of a TOML file. Raises InputError.

    The engine knows the nodes. If the file has groups too, they must be the same ones, and queues
    may use their names. `seconds` turns times since 1970 into the cluster's own.
    """
    table = _read(text)
    groups = _groups(text, table, lambda _: None) or cluster.groups
    if [(g.nodes, g.gpus_per_node) for g in groups] != [
        (g.nodes, g.gpus_per_node) for g in cluster.groups
    ]:
        what = "its [[group]] tables are not the nodes of this cluster"
        has = "+".join(f"{g.nodes}x{g.gpus_per_node}" for g in cluster.groups)
        raise InputError(text, what, f"the engine has {has}: say the same, or leave them out")
    named = tuple(
        replace(
            own,
            name=g.name,
            gpu_type=own.gpu_type or g.gpu_type,
            gpus_per_island=g.gpus_per_island,
        )
        for own, g in zip(cluster.groups, groups, strict=True)
    )
    tenants = read_tenants(text, table, named, seconds)
    return replace(
        cluster,
        groups=named,
        links=_links(text, table) or cluster.links,
        queues=tenants.queues,
        accounts=tenants.accounts,
        qos=tenants.qos,
        reservations=tenants.reservations,
        users=tenants.users,
    )


def _read(text: str) -> Mapping[str, object]:
    """Returns the tables of a TOML file whose names are known. Raises InputError."""
    try:
        table = tomllib.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(text, f"cannot be read as TOML: {error}") from None
    known = (*_FIELDS, *KINDS, EPOCH)
    for key in table:
        if key not in known:
            raise InputError(text, f"unknown table '{key}'", nearest(key, known))
    return table


def _groups(
    text: str, table: Mapping[str, object], memory_of: Callable[[str], float | None]
) -> tuple[NodeGroup, ...]:
    groups = _tables(text, table, "group")
    for group in groups:
        default_bytes = memory_of(str(group.get("gpu_type", "")))
        if default_bytes is not None:
            group.setdefault("gpu_memory_bytes", default_bytes)
    return tuple(NodeGroup(**group) for group in groups)  # type: ignore[arg-type]


def _links(text: str, table: Mapping[str, object]) -> tuple[Link, ...]:
    return tuple(Link(**link) for link in _tables(text, table, "link"))  # type: ignore[arg-type]


def _tables(text: str, table: Mapping[str, object], kind: str) -> list[dict[str, object]]:
    """Returns the checked fields of each table of a kind, in base units. Raises InputError."""
    rows = table.get(kind, [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise InputError(text, f"'{kind}' must be a list of tables", f"write [[{kind}]]")
    return [_fields(f"{text}, {kind} {n + 1}", kind, row, n) for n, row in enumerate(rows)]


def _fields(where: str, kind: str, row: Mapping[str, object], number: int) -> dict[str, object]:
    known = _FIELDS[kind]
    fields: dict[str, object] = {"name": f"{kind}{number}"}
    for key, value in row.items():
        if key not in known:
            raise InputError(where, f"unknown field '{key}'", nearest(key, known))
        name, unit = known[key]
        fields[name] = _value(where, key, value, unit)
    for key in _REQUIRED[kind]:
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
