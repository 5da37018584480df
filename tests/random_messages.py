"""Random messages of any class of the wire: all that its codec lets in, from a seed."""

from __future__ import annotations

import dataclasses
import types
from functools import lru_cache
from random import Random
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

M = TypeVar("M")
WHOLE = (-1, 0, 0, 1, 1, 2, 3, 7, 1000, 10**6, 2**31, 2**62, -(2**62))
REAL = (0.0, -1.0, 1.0, 0.5, 1e9, 1e300, -1e300, float("inf"), float("-inf"), 5e-324)
TEXT = ("", "x", "n1", "fatal", "drain", "check", "0", "-1", "\0", "\ud800", "é" * 300, "a\nb", "/")


def random_message(rng: Random, cls: type[M], *, some: float = 0.4) -> M:
    """Returns a message whose optional fields are set with probability `some`."""
    hints = _hints(cls)
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        is_optional = field.default is not dataclasses.MISSING
        if not is_optional or rng.random() < some:
            values[field.name] = _value(rng, hints[field.name])
    try:
        return cls(**values)
    except ValueError:
        return random_message(rng, cls, some=some)


@lru_cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _value(rng: Random, kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        inner = [k for k in get_args(kind) if k is not type(None)]
        return _value(rng, rng.choice(inner))
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            return tuple(_value(rng, kinds[0]) for _ in range(rng.randrange(4)))
        return tuple(_value(rng, k) for k in kinds)
    if dataclasses.is_dataclass(kind):
        return random_message(rng, kind)  # type: ignore[arg-type]
    if kind is bool:
        return rng.random() < 0.5
    return rng.choice({int: WHOLE, float: REAL, str: TEXT}[kind])
