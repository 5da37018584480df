"""The options of the last `dovetail up` of a folder, which the next one uses as defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.cli.site_options import SiteTexts
    from dovetail.study.option_texts import OptionTexts

    class UpTexts(OptionTexts, SiteTexts):
        """The options of `dovetail up` for its site and for a run."""


FILE = "up.json"
OF_RUN = (
    *("cluster", "forecast", "belief", "placement", "switching", "physics"),
    *("profiles", "interference", "cycle", "without", "seed"),
)
SITE = (
    *("gate", "lease", "jobs", "health_check", "health_every", "prolog", "epilog"),
    *("script_limit", "output_max", "reclaim_idle", "container_runtime"),
)
REMEMBERED = ("policy", "engine", *OF_RUN, *SITE)
"""The options in the file. --listen and sharing open the cluster to others: never implied."""
_KINDS = {"seed": int, "profiles": list, "health_every": float, "script_limit": float}
"""Types of the options that are not texts."""


def keep(home: Path, used: Mapping[str, object]) -> None:
    """Writes the options of a running controller."""
    from dovetail.files.whole_file import PRIVATE, write_whole

    options = {name: used[name] for name in REMEMBERED if name in used}
    write_whole(home / FILE, json.dumps(options, indent=1) + "\n", mode=PRIVATE)


def lease_of(home: Path) -> str:
    """Returns the lease of the nodes of a cluster as the user wrote it, "" where there is none."""
    from dovetail.live.engines.engine_spec import EngineSpec

    try:
        last = _read(home / FILE)
        joins = EngineSpec.parse(str(last.get("engine", "local"))).joins
    except (InputError, OSError):
        return ""
    lease = str(last.get("lease", ""))
    return lease if joins and lease != "0" else ""


def recalled(home: Path, context: click.Context) -> dict[str, object]:
    """Returns the stored options that this command line omits.

    Leaves out the options whose stored value is the default. Raises InputError.
    """
    last = _read(home / FILE)
    options = {}
    for name in REMEMBERED:
        explicit = context.get_parameter_source(name) is not ParameterSource.DEFAULT
        if name in last and not explicit and last[name] != context.params[name]:
            options[name] = last[name]
    return options


def with_recalled(last: Mapping[str, object], texts: UpTexts) -> tuple[SiteTexts, OptionTexts]:
    """Returns the options of the site and those of a run, the last ones where none is given.

    Paths of files are such that the controller finds them wherever it runs.
    """
    given = dict(texts)
    profiles = tuple(str(Path(path).absolute()) for path in texts["profiles"])
    file = texts.get("cluster", "")
    given |= {"profiles": profiles, "cluster": str(Path(file).absolute()) if file else ""}
    site = {name: last.get(name, given.pop(name)) for name in SITE}
    recalled_ones = {name: last[name] for name in last if name in OF_RUN}
    return cast("SiteTexts", site), cast("OptionTexts", {**given, **recalled_ones})


def words(options: Mapping[str, object]) -> str:
    """Returns options as text of a command line."""
    texts = []
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            texts.append(f"--{name.replace('_', '-')} {one}")
    return " ".join(texts)


def _read(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "remove it") from None
    if not isinstance(values, dict):
        raise InputError(str(path), "the file contains no options", "remove it")
    options: dict[str, object] = {}
    for name, value in values.items():
        if name == "profiles" and isinstance(value, list):
            options[name] = tuple(str(one) for one in value)
        elif name in REMEMBERED and isinstance(value, _KINDS.get(name, str)):
            options[name] = value
        else:
            raise InputError(str(path), f"option '{name}' or its value is unknown", "remove it")
    return options
