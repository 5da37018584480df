"""The file of a cluster of plain machines: a `[[node]]` for each.

```
[[node]]
name = "n1"

[[node]]
name = "n2"
address = "10.0.0.2"
user = "train"
command = "~/venv/bin/dovetail"
```

For `nodes:` a node has its name alone; the rest says how `ssh:` starts its agent.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.live.join.word import check_name

HOST = re.compile(r"[A-Za-z0-9_.:%\[\]][A-Za-z0-9_.:%\[\]-]*", re.ASCII)
"""A host name or an address; ssh takes one that begins with a hyphen for an option."""
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*", re.ASCII)
SLOTS_MAX = 1024


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node: its name, and for `ssh:` where and how its agent is started.

    `address` is what ssh is given (the name by default), `user` and `port` as in the user's ssh
    configuration by default, `folder` that of the agent there, `command` what `dovetail` is called
    there, `host` and `slots` the agent's options of these names. `start` is a command of the node's
    own in place of all that: it starts the agent, with the join word on its standard input.
    """

    name: str
    address: str = ""
    port: int = 0
    user: str = ""
    folder: str = ""
    command: str = "dovetail"
    host: str = ""
    slots: int = 0
    start: str = ""


def read_node_file(path: Path, *, names_alone: bool = False) -> tuple[NodeEntry, ...]:
    """Returns the nodes of a file, in its order. Raises InputError with file and entry.

    With `names_alone` nothing is taken that says how agents are started.
    """
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
    nodes = tuple(
        _node(path, number, table, names_alone) for number, table in enumerate(tables, start=1)
    )
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(str(path), f"two nodes are named '{name}'")
    return nodes


def _node(path: Path, number: int, table: object, names_alone: bool) -> NodeEntry:
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
        if names_alone and key != "name":
            mend = "remove it, or have the agents started with --engine ssh:FILE"
            raise InputError(
                where, f"{key} says how an agent is started, which nodes: leaves", mend
            )
    if "name" not in table:
        raise InputError(where, "it has no name", "use its host name")
    check_name(table["name"], where)
    _check_ranges(table, where)
    return NodeEntry(**table)


def _check_ranges(table: Mapping[str, object], where: str) -> None:
    """Raises InputError for a value that no machine has."""
    for key, most in (("slots", SLOTS_MAX), ("port", (1 << 16) - 1)):
        if key in table and not 1 <= int(str(table[key])) <= most:
            raise InputError(where, f"{key} is {table[key]}", f"give 1 to {most}")
    for key, form in (("address", HOST), ("host", HOST), ("user", USER)):
        if key in table and not form.fullmatch(str(table[key])):
            raise InputError(where, f"{key} is {table[key]!r}", "user and port have own fields")
    for key in ("folder", "command", "start"):
        value = str(table.get(key, "x"))
        if not value or any(ord(letter) < 32 for letter in value):
            raise InputError(where, f"{key} is {value!r}", "give a path on that machine")
    if "start" in table and table.keys() & {"folder", "command", "host", "slots"}:
        what = "'start' runs a command of the node's own, which has these options"
        raise InputError(where, what, "leave out folder, command, host and slots")


def check_started_by_node(path: Path) -> None:
    """Raises InputError for a node whose agent would run as the user who logs in there."""
    for number, node in enumerate(read_node_file(path), start=1):
        if not node.start:
            mend = 'give start = "sudo -n /usr/local/sbin/dovetail-node", which root has put there'
            what = "the agent of several users is root's, and the controller must not be"
            raise InputError(f"{path}, node {number}", what, mend)
