"""The options of `dovetail up` for the scripts of a site: a health check, a prolog, an epilog."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.live.engines.site_scripts import NodeScripts

OUTPUT_BYTES_MIN = 64 << 10
IDLE_S_MIN = 60.0
F = TypeVar("F", bound=Callable[..., object])
_OPTIONS = (
    click.option(
        "--health-check",
        default="",
        metavar="FILE",
        help="Script that runs on each node; a node is drained while it fails. [default: none]",
    ),
    click.option(
        "--health-every",
        default=60.0,
        type=click.FloatRange(1.0),
        help="Seconds between runs of the health check.",
    ),
    click.option(
        "--prolog",
        default="",
        metavar="FILE",
        help="Script that runs on each node of a job before its first worker. [default: none]",
    ),
    click.option(
        "--epilog",
        default="",
        metavar="FILE",
        help="Script that runs on each node of a job after its last worker. [default: none]",
    ),
    click.option(
        "--script-limit",
        default=60.0,
        type=click.FloatRange(1.0),
        help="Seconds after which such a script is killed, and has failed.",
    ),
    click.option(
        "--output-max",
        default="1G",
        metavar="SIZE",
        help="Output that each job keeps in the cluster's folder, the newest; 0: all.",
    ),
    click.option(
        "--reclaim-idle",
        default="0",
        metavar="TIME",
        help="Take back GPUs that a job has not used for so long, as in 30m; 0: never.",
    ),
)


def site_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def site_scripts(
    health_check: str,
    health_every: float,
    prolog: str,
    epilog: str,
    script_limit: float,
    output_max: str,
    reclaim_idle: str,
) -> NodeScripts:
    """Returns the scripts that the options name. Raises InputError for one that cannot run."""
    from dovetail.live.engines.site_scripts import NodeScripts

    return NodeScripts(
        _script("--health-check", health_check),
        _script("--prolog", prolog),
        _script("--epilog", epilog),
        health_every,
        script_limit,
        _size_bytes(output_max),
        _idle_s(reclaim_idle),
    )


def _idle_s(text: str) -> float:
    from dovetail.jobspec.values import seconds

    try:
        limit_s = 0.0 if text == "0" else seconds(text)
    except ValueError as error:
        raise InputError("--reclaim-idle", str(error)) from None
    if limit_s == float("inf") or 0 < limit_s < IDLE_S_MIN:
        raise InputError("--reclaim-idle", f"it is at least {IDLE_S_MIN:g}s, or 0, not '{text}'")
    return limit_s


def _size_bytes(text: str) -> int:
    from dovetail.jobspec.values import size_bytes

    try:
        most_bytes = int(size_bytes(text))
    except ValueError as error:
        raise InputError("--output-max", str(error)) from None
    if 0 < most_bytes < OUTPUT_BYTES_MIN:
        raise InputError("--output-max", f"it is at least {OUTPUT_BYTES_MIN >> 10}K, not '{text}'")
    return most_bytes


def _script(option: str, text: str) -> str:
    if not text:
        return ""
    path = Path(text).expanduser().absolute()
    where = f"{option} {path}"
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(where, str(error.strerror)) from None
    if not (stat.S_ISREG(mode) and os.access(path, os.X_OK)):
        raise InputError(where, "is not an executable file", f"chmod +x {path}")
    if mode & stat.S_IWOTH:
        raise InputError(where, "can be changed by every user", f"chmod o-w {path}")
    return str(path)
