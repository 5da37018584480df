"""The options of the last `dovetail up` of a folder: one without options uses them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from dovetail.core.errors import InputError

FILE = "up.json"
KEPT = (
    *("policy", "engine", "forecast", "belief", "placement", "switching", "physics"),
    *("profiles", "interference", "cycle", "without", "seed"),
)
"""What is kept. What opens the cluster to others (--listen, sharing) is asked for each time."""
_KINDS = {"seed": int, "profiles": list}
"""What the others are not: texts."""


def keep(home: Path, used: Mapping[str, object]) -> None:
    """Writes the options of a controller that is up."""
    from dovetail.live.system.private_file import write_private

    kept = {name: used[name] for name in KEPT if name in used}
    write_private(home / FILE, json.dumps(kept, indent=1) + "\n", synced=True)


def recalled(home: Path, context: click.Context) -> dict[str, object]:
    """Returns the options of the last time that this command line does not give.

    Only those that differ from what it would use without them. Raises InputError.
    """
    last = _read(home / FILE)
    found = {}
    for name in KEPT:
        given = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name in last and not given and last[name] != context.params[name]:
            found[name] = last[name]
    return found


def words(options: Mapping[str, object]) -> str:
    """Returns options as they are typed."""
    said = []
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            said.append(f"--{name} {one}")
    return " ".join(said)


def _read(path: Path) -> dict[str, object]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "remove it") from None
    if not isinstance(kept, dict):
        raise InputError(str(path), "it holds no options", "remove it")
    found: dict[str, object] = {}
    for name, value in kept.items():
        if name == "profiles" and isinstance(value, list):
            found[name] = tuple(str(one) for one in value)
        elif name in KEPT and isinstance(value, _KINDS.get(name, str)):
            found[name] = value
        else:
            raise InputError(str(path), f"'{name}' is no such option or value", "remove it")
    return found
