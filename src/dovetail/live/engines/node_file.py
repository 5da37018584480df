"""The file of a cluster of plain machines: a `[[node]]` for each.

```
[[node]]
name = "n1"

[[node]]
name = "n2"
address = "10.0.0.2"
```
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.live.join.word import check_name


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node: its name, and for `ssh:` where and how its agent is started.

    `address` is the host that ssh is given (the name by default), `folder` that of the agent there,
    `slots` CPU slots in place of GPUs, and `command` what `dovetail` is called there.
    """

    name: str
    address: str = ""
    folder: str = ""
    slots: int = 0
    command: str = "dovetail"


def read_node_file(path: Path) -> tuple[NodeEntry, ...]:
    """Returns the nodes of a file, in its order. Raises InputError with file and entry."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is no TOML: {error}") from None
    unknown = sorted(set(content) - {"node"})
    if unknown:
        raise InputError(str(path), f"unknown entry '{unknown[0]}'", "give [[node]] tables alone")
    tables = content.get("node", [])
    if not isinstance(tables, list) or not tables:
        raise InputError(
            str(path), "it has no nodes", 'give a [[node]] with name = "HOST" for each'
        )
    nodes = tuple(_node(path, number, table) for number, table in enumerate(tables, start=1))
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(str(path), f"two nodes are named '{name}'")
    return nodes


def _node(path: Path, number: int, table: object) -> NodeEntry:
    where = f"{path}, node {number}"
    if not isinstance(table, dict):
        raise InputError(where, "it is no table", "write [[node]] above it")
    known = {field.name: field.type for field in fields(NodeEntry)}
    for key, value in table.items():
        if key not in known:
            raise InputError(where, f"unknown field '{key}'", nearest(key, list(known)))
        kind = int if known[key] == "int" else str
        if type(value) is not kind:
            raise InputError(where, f"{key} is {value!r}", f"give a value of type {kind.__name__}")
    if "name" not in table:
        raise InputError(where, "it has no name", "use its host name")
    if not 0 <= table.get("slots", 0) <= 1024:
        raise InputError(where, f"slots is {table['slots']}", "give 1 to 1024")
    check_name(table["name"], where)
    return NodeEntry(**table)
