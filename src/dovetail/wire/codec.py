"""Messages as JSON lines and back. Whatever does not fit a message exactly is refused.

A message is a frozen dataclass of plain fields: text, numbers, truth values, tuples, other
messages, or None. Nothing is ever executed or looked up by name outside the given set of classes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Generic, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

Message = TypeVar("Message")
_Reader = Callable[[object, str], object]
"""Checks a value and returns it as a field of a message; the text names that field in errors."""

WHOLE_MAX = 1 << 63
"""Whole numbers from here on are no number that we would send as a fraction."""

PLAIN = frozenset({str, int, float, bool, type(None)})
"""The types of values that are the same in a message and in JSON."""

LINE_BYTES_MAX = 1 << 20
"""A longer line is refused unread: no peer may fill the memory of this process."""


_text = json.JSONEncoder(separators=(",", ":"), allow_nan=True).encode


class WireError(Exception):
    """A line is not one of the expected messages, and why."""


class Codec(Generic[Message]):
    """Turns messages of a closed set of classes into lines and back; `m` names the class.

    The name on the wire is part of the protocol and is given here, so that a class may be renamed.
    """

    def __init__(self, classes: Mapping[str, type[Message]]) -> None:
        self._class = dict(classes)
        self._name: dict[type, str] = {cls: name for name, cls in classes.items()}

    def encode(self, message: object) -> bytes:
        """Returns the line of a message, with its end. Raises WireError if it is too long."""
        fields = {"m": self._name[type(message)], **plain(message)}
        line = _text(fields).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise WireError(f"a message of {len(line)} bytes is over {LINE_BYTES_MAX}")
        return line

    def decode(self, line: bytes) -> Message:
        """Returns the message of a line. Raises WireError."""
        fields = parse_object(line)
        name = fields.pop("m", None)
        cls = self._class.get(name) if isinstance(name, str) else None
        if cls is None:
            raise WireError(f"unknown message {str(name)[:40]!r}")
        return build(cls, fields)


def parse_object(line: bytes, bytes_max: int = LINE_BYTES_MAX) -> dict[str, object]:
    """Returns the JSON object of a line. Raises WireError."""
    if len(line) > bytes_max:
        raise WireError(f"a line of {len(line)} bytes is over {bytes_max}")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WireError("a message must be a JSON object")
    return value


def build(cls: type[Message], fields: Mapping[str, object]) -> Message:
    """Returns the frozen dataclass that a mapping describes. Raises WireError."""
    kind: type = cls
    known = _fields(kind)
    layout = _NESTED.get(kind)
    if layout is not None:
        fields = _unfold(fields, *layout)
    values = {}
    # NOTE: by the fields that came, which are few, not by all that the class knows: this took an
    # inventory of eight workers from 182 to 136 µs.
    for name, value in fields.items():
        field = known.get(name)
        if field is None:
            unknown = sorted(set(fields) - set(known))
            raise WireError(f"{cls.__name__}: unknown field {str(unknown[0])[:40]!r}")
        values[name] = field[0](value, field[1])
    if not values.keys() >= _required(kind):
        missing = next(name for name in known if name in _required(kind) and name not in values)
        raise WireError(f"{cls.__name__}: field {missing!r} is missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise WireError(f"{cls.__name__}: {error}") from None


_NESTED: dict[type, tuple[str, frozenset[str]]] = {}


def nested(name: str, first: str, last: str) -> Callable[[type[Message]], type[Message]]:
    """Returns a decorator: fields `first` to `last` travel in an object called `name`.

    So a message may be one flat class while its lines keep the form that other versions read.
    """

    def register(cls: type[Message]) -> type[Message]:
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        _NESTED[cls] = name, frozenset(names[names.index(first) : names.index(last) + 1])
        return cls

    return register


def _fold(fields: Mapping[str, object], name: str, inside: frozenset[str]) -> dict[str, object]:
    """Returns the fields of a message, some of them in an object that stands where they stood."""
    inner: dict[str, object] = {}
    folded: dict[str, object] = {}
    for field, value in fields.items():
        if field in inside:
            folded[name], inner[field] = inner, value
        else:
            folded[field] = value
    return folded


def _unfold(fields: Mapping[str, object], name: str, inside: frozenset[str]) -> dict[str, object]:
    """Returns the fields of a class, some taken out of their object. Raises WireError."""
    outer = dict(fields)
    inner = outer.pop(name, None)
    if not isinstance(inner, dict):
        raise WireError(f"{name}: expected an object")
    misplaced = sorted((inside & set(outer)) | (set(inner) - inside))
    if misplaced:
        raise WireError(f"{name}: unknown field {misplaced[0][:40]!r}")
    return outer | inner


def plain(message: object) -> dict[str, object]:
    """Returns the fields of a message as JSON values, those at their default left out."""
    fields = {}
    cls: type = type(message)
    for name, default in _defaults(cls):
        value = getattr(message, name)
        if default is dataclasses.MISSING or value != default:
            fields[name] = value if type(value) in PLAIN else _json(value)
    layout = _NESTED.get(cls)
    return fields if layout is None else _fold(fields, *layout)


@lru_cache(maxsize=256)
def _defaults(cls: type) -> tuple[tuple[str, object], ...]:
    """Returns the fields of a class, each with its usual value.

    NOTE: to ask `dataclasses` for each message took half of the time of writing one.
    """
    return tuple((f.name, f.default) for f in dataclasses.fields(cls))


def _json(value: object) -> object:
    if isinstance(value, tuple):
        return [v if type(v) in PLAIN else _json(v) for v in value]
    return plain(value) if dataclasses.is_dataclass(value) else value


@lru_cache(maxsize=256)
def _fields(cls: type) -> dict[str, tuple[_Reader, str]]:
    """Returns what reads each field of a class, and what an error calls that field."""
    hints = get_type_hints(cls)
    return {
        f.name: (_reader(hints[f.name]), f"{cls.__name__}.{f.name}")
        for f in dataclasses.fields(cls)
        if f.init
    }


@lru_cache(maxsize=256)
def _required(cls: type) -> frozenset[str]:
    known = (f for f in dataclasses.fields(cls) if f.init)
    return frozenset(f.name for f in known if f.default is dataclasses.MISSING)


def _reader(kind: object) -> _Reader:
    """Returns what checks a value of one kind.

    NOTE: to look at kinds once for each class, not for each value, takes a spec from 50 to 10 µs.
    """
    if get_origin(kind) in (Union, types.UnionType):
        inner = _reader(next(k for k in get_args(kind) if k is not type(None)))
        if type(None) not in get_args(kind):
            return inner
        return lambda value, where: None if value is None else inner(value, where)
    if get_origin(kind) is tuple:
        return _tuple_reader(get_args(kind))
    assert isinstance(kind, type)
    if dataclasses.is_dataclass(kind):
        return lambda value, where: build_nested(value, kind, where)
    if kind is float:
        return _float
    if kind is int:
        return _int
    return lambda value, where: value if type(value) is kind else _refuse(value, kind, where)


def build_nested(value: object, kind: type[Message], where: str) -> Message:
    """Returns the dataclass that a JSON value describes. Raises WireError."""
    if not isinstance(value, dict):
        raise WireError(f"{where}: expected an object")
    return build(kind, value)


def _float(value: object, where: str) -> object:
    if type(value) is int and abs(value) < WHOLE_MAX:
        return float(value)
    if type(value) is not float or math.isnan(value):
        _refuse(value, float, where)
    return value


def _int(value: object, where: str) -> object:
    # Stores and sockets take 64 bits, and no peer has a use for more.
    if type(value) is not int or not -WHOLE_MAX <= value < WHOLE_MAX:
        _refuse(value, int, where)
    return value


def _refuse(value: object, kind: type, where: str) -> NoReturn:
    raise WireError(f"{where}: expected {kind.__name__}, got {str(value)[:40]!r}")


def _tuple_reader(kinds: tuple[object, ...]) -> _Reader:
    readers = [_reader(k) for k in kinds if k is not Ellipsis]
    endless = len(kinds) == 2 and kinds[1] is Ellipsis

    def read(value: object, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise WireError(f"{where}: expected a list")
        if endless:
            first = readers[0]
            return tuple([first(v, where) for v in value])
        if len(value) != len(readers):
            raise WireError(f"{where}: expected {len(readers)} entries, got {len(value)}")
        return tuple([r(v, where) for r, v in zip(readers, value, strict=True)])

    return read
