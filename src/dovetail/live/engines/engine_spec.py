"""The text of an engine, parsed: which kind it is, and what nodes it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError

LOCAL, EMULATED, NODES, SSH = "local", "emulated", "nodes", "ssh"
SLURM, RAY = "slurm", "ray"
JOINED = (NODES, SSH, SLURM, RAY)
"""The engines whose nodes are other machines."""
SPEED_MAX = 100_000.0
NODES_MAX, SLOTS_MAX = 64, 1024


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The parsed text of an engine: `local:2x4`, `emulated:16x8@60`, `ssh:FILE`, `slurm`,
    `ray:HOST:PORT`.

    `target` is what follows the kind of an engine whose nodes join: a file, or an address.
    """

    kind: str
    nodes: int = 1
    slots: int = 0
    shape: str = ""
    speed: float = 1.0
    target: str = ""

    @property
    def joins(self) -> bool:
        """True if the nodes are of other machines, whose agents join."""
        return self.kind in JOINED

    @staticmethod
    def parse(text: str) -> EngineSpec:
        """Parses the text of an engine. Raises InputError."""
        kind, _, rest = text.partition(":")
        if kind not in PARSERS:
            raise _unknown(text)
        return PARSERS[kind](text, rest)


def _unknown(text: str) -> InputError:
    mend = "as in local, local:4, emulated:4x4@60, nodes:FILE, ssh:FILE, slurm, ray:HOST:PORT"
    return InputError("--engine", f"cannot read '{text}'", mend)


def _local(text: str, rest: str) -> EngineSpec:
    nodes, _, each = rest.partition("x") if "x" in rest else ("1", "", rest or "0")
    if not (nodes.isdecimal() and each.isdecimal()) or text.endswith(":"):
        raise _unknown(text)
    if not 1 <= int(nodes) <= NODES_MAX or not (0 if not rest else 1) <= int(each) <= SLOTS_MAX:
        raise InputError(
            "--engine", f"1 to {NODES_MAX} nodes of 1 to {SLOTS_MAX} slots, not '{text}'"
        )
    return EngineSpec(LOCAL, int(nodes), int(each))


def _emulated(text: str, rest: str) -> EngineSpec:
    if not rest:
        raise _unknown(text)
    shape, at, speed = rest.partition("@")
    try:
        cluster = Cluster.parse(shape)
    except InputError as error:
        mend = error.mend or "as in emulated:4x4@60"
        raise InputError("--engine", f"'{text}': {error.what}", mend) from None
    try:
        factor = float(speed) if at else 1.0
    except ValueError:
        raise _unknown(text) from None
    if not 0 < factor <= SPEED_MAX:
        raise InputError("--engine", f"a speed is above 0 and at most {SPEED_MAX:g}: '{text}'")
    return EngineSpec(EMULATED, len(cluster.installed), 0, shape, factor)


def _of_file(text: str, rest: str) -> EngineSpec:
    kind = text.partition(":")[0]
    if not rest:
        raise InputError("--engine", f"'{text}' names no file", f"as in {kind}:nodes.toml")
    return EngineSpec(kind, target=str(Path(rest).expanduser().absolute()))


def _slurm(text: str, rest: str) -> EngineSpec:
    if text.endswith(":") or (rest and not rest.isdecimal()):
        raise InputError("--engine", f"cannot read '{text}'", "as in slurm, or slurm:4 (CPU slots)")
    if rest and not 1 <= int(rest) <= SLOTS_MAX:
        raise InputError("--engine", f"1 to {SLOTS_MAX} slots on each node, not '{text}'")
    return EngineSpec(SLURM, slots=int(rest or 0))


def _of_ray(text: str, rest: str) -> EngineSpec:
    host, _, port = rest.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_address = bool(bare) and not set(bare) & set("/@ ") and (bare == host) != (":" in bare)
    if not (is_address and port.isdecimal() and 0 < int(port) < 1 << 16):
        mend = "give the address of its GCS, as `ray start --head` prints it: ray:10.0.0.1:6379"
        raise InputError("--engine", f"'{text}' names no address of a Ray cluster", mend)
    return EngineSpec(RAY, target=rest)


PARSERS: Mapping[str, Callable[[str, str], EngineSpec]] = {
    LOCAL: _local,
    EMULATED: _emulated,
    NODES: _of_file,
    SSH: _of_file,
    SLURM: _slurm,
    RAY: _of_ray,
}
"""Parses the text of each kind of engine, given whole and without the kind."""
