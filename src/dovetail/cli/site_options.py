"""The options of `dovetail up` for a site: how nodes join, and the scripts that run on them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.live.engines.joined_engine import JoinSettings
    from dovetail.wire.site import SiteSettings

OUTPUT_BYTES_MIN = 64 << 10
IDLE_S_MIN = 60.0
NOT_SHARED = "none"
F = TypeVar("F", bound=Callable[..., object])
_OPTIONS = (
    click.option(
        "--gate",
        default="",
        metavar="HOST[:PORT]",
        help="Where agents on other machines reach the controller. [default: its host name]",
    ),
    click.option(
        "--lease",
        default="10m",
        help="How long jobs on other machines run without a controller; 0: without limit.",
    ),
    click.option(
        "--jobs",
        default="",
        metavar="DIR",
        help="Folder that nodes share, for those of jobs; none: files travel. [default: HOME/jobs]",
    ),
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
    click.option(
        "--container-runtime",
        type=click.Choice(["auto", "podman", "apptainer"]),
        default="auto",
        help="What runs jobs with a container image; auto: the one found on the node.",
    ),
)


class SiteTexts(TypedDict):
    """The options as they were given, or are remembered."""

    gate: str
    lease: str
    jobs: str
    health_check: str
    health_every: float
    prolog: str
    epilog: str
    script_limit: float
    output_max: str
    reclaim_idle: str
    container_runtime: str


def site_options(command: F) -> F:
    """Adds the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def site_settings(texts: SiteTexts, engine: str) -> SiteSettings:
    """Returns what the options set for all nodes of an engine. Raises InputError.

    The scripts and the runtime are those of the nodes: on other machines they cannot be looked at.
    """
    from dovetail.live.engines.containers import check_choice
    from dovetail.live.engines.engine_spec import EngineSpec
    from dovetail.wire.site import SiteSettings

    script = _script_there if EngineSpec.parse(engine).joins else _script_here
    if not EngineSpec.parse(engine).joins:
        check_choice(texts["container_runtime"])
    return SiteSettings(
        script("--health-check", texts["health_check"]),
        script("--prolog", texts["prolog"]),
        script("--epilog", texts["epilog"]),
        texts["health_every"],
        texts["script_limit"],
        _size_bytes(texts["output_max"]),
        _idle_s(texts["reclaim_idle"]),
        texts["container_runtime"],
    )


def site_words(site: SiteSettings) -> dict[str, str | float]:
    """Returns the options that give these settings."""
    return {
        "health_check": site.health_check,
        "health_every": site.health_every_s,
        "prolog": site.prolog,
        "epilog": site.epilog,
        "script_limit": site.script_limit_s,
        "output_max": _size_text(site.output_bytes_max),
        "reclaim_idle": f"{site.reclaim_idle_s:g}s" if site.reclaim_idle_s else "0",
        "container_runtime": site.container_runtime,
    }


def _size_text(size_bytes: int) -> str:
    """Returns a size as the option gives it: `1G`."""
    for unit, each in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size_bytes and size_bytes % each == 0:
            return f"{size_bytes // each}{unit}"
    return str(size_bytes)


def join_settings(texts: SiteTexts) -> JoinSettings:
    """Returns how nodes of other machines join. Raises InputError."""
    from dovetail.jobspec.values import seconds
    from dovetail.live.engines.joined_engine import JoinSettings
    from dovetail.live.workers.rules import ENDLESS_LEASE_S, Rules

    lease = texts["lease"]
    try:
        lease_s = ENDLESS_LEASE_S if lease == "0" else min(seconds(lease), ENDLESS_LEASE_S)
    except ValueError as error:
        raise InputError(f"--lease {lease}", str(error)) from None
    least_s = Rules().lease_s_min
    if lease_s < least_s:
        raise InputError(f"--lease {lease}", f"it is 0 or at least {least_s:g}s")
    return JoinSettings(texts["gate"], lease_s, lease, texts["jobs"] == NOT_SHARED)


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


def _script_there(option: str, text: str) -> str:
    if text and not text.startswith("/"):
        raise InputError(f"{option} {text}", "nodes of other machines need the whole path")
    return text


def _script_here(option: str, text: str) -> str:
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
