"""Jobs of one GPU type that may also use another: as a change, with the speed that is assumed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Labels
from dovetail.core.node_sets import types_of
from dovetail.core.trace import Trace
from dovetail.physics.zoo.device import time_factor

OPTION = "--types-for"
_AS_IN = "as in a100=h100, or a100=h100@2.0 for twice the speed"
_ONE = re.compile(r"(?P<own>[^=@|]+)=(?P<other>[^=@|]+)(?:@(?P<speed>\d+(?:\.\d+)?)x?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TypeFor:
    """Jobs that ask for `own` first may also use `other`, on which they are `speed` times as fast.

    `known` tells that the speed is that of the device table, not the user's.
    """

    own: str
    other: str
    speed: float
    known: bool

    def __str__(self) -> str:
        return f"{self.own} jobs also on {self.other}"

    @property
    def sentence(self) -> str:
        """Returns what the rows assume."""
        source = "`dovetail models devices`" if self.known else OPTION
        return (
            f"Jobs that asked for {self.own} may also use {self.other} where {self.own} has no "
            f"room, assumed to be {self.speed:.3g} times as fast there (from {source}; not "
            "measured on these jobs)"
        )


def parse_types_for(text: str) -> TypeFor:
    """Returns the change of a text like `a100=h100@2.0`. Raises InputError."""
    match = _ONE.fullmatch(text)
    if match is None or (match["speed"] and not float(match["speed"])):
        raise InputError(OPTION, f"'{text}' is not TYPE=TYPE", _AS_IN)
    own, other = match["own"].strip().lower(), match["other"].strip().lower()
    if own == other:
        raise InputError(OPTION, f"'{text}' names one type twice", _AS_IN)
    if match["speed"]:
        return TypeFor(own, other, float(match["speed"]), known=False)
    try:
        return TypeFor(own, other, 1.0 / time_factor(own, other), known=True)
    except InputError as error:
        raise InputError(
            OPTION, f"'{text}': {error}", f"give the speed, as in {own}={other}@2.0"
        ) from None


def in_force(also: Sequence[TypeFor], cluster: Cluster) -> tuple[TypeFor, ...]:
    """Returns those whose second type the cluster has."""
    types = {group.gpu_type.casefold() for group in cluster.groups}
    return tuple(one for one in also if one.other in types)


def with_types(trace: Trace, also: Sequence[TypeFor]) -> Trace:
    """Returns the trace with the types added to what the jobs ask for. Raises InputError."""
    if not also:
        return trace
    labels = trace.jobs.gpu_type
    names = list(labels.names)
    for one in also:
        asked = sorted({kind for name in labels.names for kind in types_of(name)[:1]})
        if one.own not in asked:
            mend = nearest(one.own, asked) if asked else "its jobs name no GPU type"
            raise InputError(OPTION, f"no job asks for '{one.own}'", mend)
        names = [
            f"{wider}|{one.other}"
            if types_of(name)[:1] == (one.own,) and one.other not in types_of(wider)
            else wider
            for name, wider in zip(labels.names, names, strict=True)
        ]
    texts = [names[code] if code >= 0 else "" for code in labels.codes.tolist()]
    return replace(trace, jobs=replace(trace.jobs, gpu_type=Labels.of(texts)))


def with_nodes_for(cluster: Cluster, also: Sequence[TypeFor]) -> Cluster:
    """Returns the cluster whose queues that own nodes of the first type may use the second."""
    groups = cluster.groups
    queues = list(cluster.queues)
    for one in also:
        own = {g.name for g in groups if g.gpu_type.casefold() == one.own}
        more = [g.name for g in groups if g.gpu_type.casefold() == one.other]
        queues = [
            replace(q, groups=tuple(dict.fromkeys((*q.groups, *more))))
            if own & set(q.groups)
            else q
            for q in queues
        ]
    return replace(cluster, queues=tuple(queues)) if also else cluster


def speeds_of(also: Sequence[TypeFor]) -> tuple[tuple[str, str, float], ...]:
    """Returns the speeds as `Options.type_speeds` has them."""
    return tuple((one.own, one.other, one.speed) for one in also)
