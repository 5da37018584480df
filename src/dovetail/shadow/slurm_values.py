"""Values as Slurm's JSON writes them, from 22.05 to 25.11.

From 23.02 on numbers are `{"set": true, "infinite": false, "number": 5}` and states are lists;
before, they are plain. What is neither is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

JsonObject = Mapping[str, object]
NOT_SET = frozenset((0xFFFE, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE))
UNLIMITED = frozenset((0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
"""Slurm's NO_VAL and INFINITE of 16, 32 and 64 bits, which some plugins write out."""

_GRES = re.compile(r"gpu(?::(?P<type>[^:,(]+(?=:\d+$)|[^:,(\d][^:,(]*))?(?::(?P<count>\d+))?")
"""A type may begin with a digit (`gpu:3090:8`); a number alone is a count (`gpu:8`)."""
LAST_S = 253402300800.0
"""The first second of the year 10000: a later time is no time."""
_TRES = re.compile(r"(?:^|,)gres/gpu(?::(?P<type>[^=,]+))?=(?P<count>\d+)")
_HOSTS = re.compile(r"(?P<before>[^,\[\]]*)(?:\[(?P<inside>[^\]]*)\])?")


def number(value: object) -> float | None:
    """Returns a number, infinity if it is unlimited, None where Slurm gives none."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return float("inf")
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value in NOT_SET:
        return None
    return float("inf") if value in UNLIMITED else float(value)


def moment(value: object) -> float | None:
    """Returns a time in Unix seconds, None where Slurm writes 0, nothing, or no time."""
    seconds = number(value)
    return seconds if seconds and 0 < seconds < LAST_S else None


def text(value: object) -> str:
    """Returns a text, empty where there is none."""
    return value if isinstance(value, str) else ""


def words(value: object) -> frozenset[str]:
    """Returns states or flags in capitals: one text, or a list of them."""
    if isinstance(value, str):
        return frozenset({value.upper().rstrip("*~#!%$@^-+")} - {""})
    if isinstance(value, list):
        return frozenset(str(v).upper() for v in value)
    return frozenset()


def member(value: object, *path: str) -> object:
    """Returns a member of nested objects, None where one of them is missing."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def hosts(nodes: str) -> tuple[str, ...]:
    """Returns the node names of a host list, as in `n[1-3,07],gpu-a[1-2]b`."""
    return tuple(name for part in _host_parts(nodes) for name in _host_names(part))


def _host_parts(nodes: str) -> Iterator[str]:
    """Yields the parts between the commas that are outside brackets."""
    depth, part = 0, ""
    for letter in nodes:
        if letter == "," and depth == 0:
            yield part
            part = ""
            continue
        depth += (letter == "[") - (letter == "]")
        part += letter
    yield part


def _host_names(part: str) -> list[str]:
    """Returns the names of one part, which may have several brackets."""
    names = [""]
    for match in _HOSTS.finditer(part):
        before, inside = match["before"], match["inside"]
        endings = list(ranges(inside)) if inside is not None else [""]
        names = [name + before + ending for name in names for ending in endings]
    return [name for name in names if name]


def ranges(inside: str) -> Iterator[str]:
    """Yields the numbers of `1-3,07`, or of `0-9:2`, with the zeros they begin with."""
    for item in inside.split(","):
        span, _, step = item.partition(":")
        first, dash, last = span.partition("-")
        if not dash:
            yield first
        elif first.isdecimal() and last.isdecimal():
            every = int(step) if step.isdecimal() and int(step) else 1
            for value in range(int(first), int(last) + 1, every):
                yield str(value).zfill(len(first) if first.startswith("0") else 0)


def gres_gpus(gres: str) -> dict[str, int]:
    """Returns GPUs by type of `gpu:a100:4(S:0-1),gpu:v100:2`; the type "" is none given.

    Slurm writes `gpu` without a number for one.
    """
    found: dict[str, int] = {}
    plain = re.sub(r"\([^)]*\)", "", gres).replace("gres:", "").replace("gres/", "")
    for item in plain.split(","):
        match = _GRES.fullmatch(item)
        if match is not None:
            kind = match["type"] or ""
            found[kind] = found.get(kind, 0) + int(match["count"] or 1)
    return found


def tres_gpus(tres: str) -> dict[str, int]:
    """Returns GPUs by type of `cpu=4,gres/gpu=2,gres/gpu:a100=2`.

    Slurm counts a typed GPU twice, under its type and in the total; here it counts once.
    """
    found = {m["type"] or "": int(m["count"]) for m in _TRES.finditer(tres)}
    typed = sum(count for kind, count in found.items() if kind)
    rest = found.pop("", 0) - typed
    return {**found, "": rest} if rest > 0 else found


def tres_value(tres: str, name: str) -> str:
    """Returns the text of one resource of `cpu=4,mem=10G`."""
    for item in tres.split(","):
        key, _, value = item.partition("=")
        if key == name:
            return value
    return ""
