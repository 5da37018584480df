"""Profile sets as TOML files: one set is the models measured on one testbed.

Every field of a model is a table with its values, a `provenance` and a `source`; the source
is a key of the file's `[sources]` or a sentence of its own.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dovetail.core.errors import InputError
from dovetail.physics.batches.efficiency import Efficiency
from dovetail.physics.memory import MemoryLaw
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.profile import Batch, Curve, FitError, ModelProfile, StageTimes, Startup
from dovetail.physics.zoo.provenance import Provenance, Sourced

FORMAT = 1
HUGE = 1e30
"""No field of a profile comes near it; infinite and missing numbers are refused by it."""
T = TypeVar("T")
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """The models of one source, and their measured pairs."""

    family: str
    title: str
    licence: str
    sources: tuple[tuple[str, str], ...]
    profiles: tuple[ModelProfile, ...]
    pairs: tuple[PairRatio, ...] = ()


def load_profiles(path: Path) -> ProfileSet:
    """Returns the profile set of a file. Raises InputError with the field that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(str(path), f"cannot be read: {why}") from error
    return parse_profiles(text, where=str(path))


def parse_profiles(text: str, *, where: str) -> ProfileSet:
    """Returns the profile set written in `text`. Raises InputError."""
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(where, f"is not TOML: {error}") from error
    if root.get("format") != FORMAT:
        raise InputError(
            where, f"format is {root.get('format')!r}", f"this version reads format = {FORMAT}"
        )
    return _Reader(where, root).profile_set()


class _Reader:
    """Reads one file; keeps where it is, so that an error names model and field."""

    def __init__(self, where: str, root: Table) -> None:
        self._where, self._root = where, root
        sources = root.get("sources", {})
        if not isinstance(sources, dict):
            raise InputError(where, "[sources] must be a table")
        self._sources: dict[str, str] = {str(k): str(v) for k, v in sources.items()}

    def profile_set(self) -> ProfileSet:
        """Returns the whole file as a value."""
        family = _text(self._root, "family", self._where)
        models = [self._model(family, row) for row in self._rows("model")]
        if len({m.name for m in models}) < len(models):
            raise InputError(self._where, "two models have the same name")
        return ProfileSet(
            family=family,
            title=_text(self._root, "title", self._where),
            licence=_text(self._root, "licence", self._where),
            sources=tuple(self._sources.items()),
            profiles=tuple(models),
            pairs=tuple(self._pair(row) for row in self._rows("pair")),
        )

    def _rows(self, key: str) -> list[Table]:
        rows = self._root.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError(self._where, f"[[{key}]] must be a list of tables")
        return rows

    def _model(self, family: str, row: Table) -> ModelProfile:
        name = _text(row, "name", f"{self._where}: a model")
        where = f"{self._where}: model {name}"
        aliases = row.get("aliases", [])
        if not isinstance(aliases, list):
            raise InputError(where, "aliases must be a list")
        try:
            return ModelProfile(
                name=name,
                family=family,
                title=_text(row, "title", where),
                aliases=tuple(str(alias) for alias in aliases),
                **self._fields(row, where),  # type: ignore[arg-type]
            )
        except (ValueError, TypeError) as error:
            raise InputError(where, str(error)) from error

    def _fields(self, row: Table, where: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for field, read in _FIELDS.items():
            if field in row:
                table = self._table(row[field], f"{where}, field {field}")
                values[field] = self._sourced(table, read(table, f"{where}, {field}"), where)
            elif field not in _OPTIONAL:
                raise InputError(where, f"field {field} is missing")
        compute = self._table(row.get("compute"), f"{where}, field compute")
        values["compute"] = tuple(
            (gpu_type, self._compute(entry, f"{where}, compute.{gpu_type}"))
            for gpu_type, entry in compute.items()
        )
        return values

    def _compute(self, entry: object, where: str) -> Sourced[Compute]:
        table = self._table(entry, where)
        return self._sourced(table, _record(Compute, table, where), where)

    def _sourced(self, table: Table, value: T, where: str) -> Sourced[T]:
        provenance = str(table.get("provenance", ""))
        if provenance not in list(Provenance):
            known = ", ".join(Provenance)
            raise InputError(where, f"provenance '{provenance}' is unknown", f"one of {known}")
        source = _text(table, "source", where)
        return Sourced(value, Provenance(provenance), self._sources.get(source, source))

    def _pair(self, row: Table) -> PairRatio:
        where = f"{self._where}: a pair"
        try:
            return _record(PairRatio, row, where)
        except ValueError as error:
            raise InputError(where, str(error)) from error

    def _table(self, entry: object, where: str) -> Table:
        if not isinstance(entry, dict):
            raise InputError(where, "must be a table with provenance and source")
        return entry


def _text(table: Table, key: str, where: str) -> str:
    text = table.get(key)
    if not isinstance(text, str) or not text:
        raise InputError(where, f"{key} is missing or not a text")
    return text


def _number(table: Table, key: str, where: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(where, f"{key} is missing or not a number")
    if not -HUGE < value < HUGE:
        raise InputError(where, f"{key} is not a number that can be: {value}")
    return float(value)


def _count(table: Table, key: str, where: str) -> int:
    value = _number(table, key, where)
    if value != int(value):
        raise InputError(where, f"{key} must be a whole number, not {value}")
    return int(value)


def _numbers(table: Table, key: str, where: str) -> tuple[float, ...]:
    values = table.get(key)
    if not isinstance(values, list) or not values:
        raise InputError(where, f"{key} is missing or not a list of numbers")
    return tuple(_number({key: value}, key, where) for value in values)


def _counts(table: Table, key: str, where: str) -> tuple[int, ...]:
    return tuple(_count({key: n}, key, where) for n in _numbers(table, key, where))


def _flag(table: Table, key: str, where: str) -> bool:
    return table.get(key) is True


_READERS: Mapping[str, Callable[[Table, str, str], object]] = {
    "str": _text,
    "int": _count,
    "float": _number,
    "bool": _flag,
    "tuple[int, ...]": _counts,
    "tuple[float, ...]": _numbers,
}
"""How a field of a dataclass is read, by its annotation."""


def _record(kind: Callable[..., T], table: Table, where: str, prefix: str = "") -> T:
    """Returns a dataclass whose fields are keys of the table, with a prefix."""
    annotations: Mapping[str, str] = kind.__annotations__
    return kind(*(_READERS[of](table, prefix + key, where) for key, of in annotations.items()))


def _read_network(table: Table, where: str) -> Network:
    within, across = (_record(RingLink, table, where, side) for side in ("within_", "across_"))
    pair = _record(RingLink, table, where, "pair_") if "pair_latency_s" in table else None
    return Network(within, across, pair)


def _read_stages(table: Table, where: str) -> tuple[StageTimes, ...]:
    columns = [_numbers(table, key, where) for key in _STAGES]
    try:
        rows = list(zip(_counts(table, "gpus", where), *columns, strict=True))
    except ValueError as error:
        raise InputError(where, "columns differ in length") from error
    return tuple(StageTimes(*row) for row in rows)


_STAGES = ("storage_s", "cpu_s", "gpu_s", "network_s")
_OPTIONAL = ("curve", "stages", "startup", "fit_error", "efficiency")
_FIELDS: Mapping[str, Callable[[Table, str], object]] = {
    "gpu_type": lambda table, where: str(table.get("value", "")),
    "gpus_per_node": lambda table, where: _count(table, "value", where),
    "batch": partial(_record, Batch),
    "max_gpus": lambda table, where: _count(table, "value", where),
    "parameters": lambda table, where: _number(table, "value", where),
    "gradient_bytes": lambda table, where: _number(table, "value", where),
    "overlap": lambda table, where: _number(table, "value", where),
    "network": _read_network,
    "memory": partial(_record, MemoryLaw),
    "curve": partial(_record, Curve),
    "stages": _read_stages,
    "startup": partial(_record, Startup),
    "fit_error": partial(_record, FitError),
    "efficiency": partial(_record, Efficiency),
}
"""How each sourced field of a model is read; the name is that of the `ModelProfile` field."""


def dump_profiles(profiles: ProfileSet) -> str:
    """Returns the set as TOML that `parse_profiles` reads back to an equal value."""
    key_of = {sentence: key for key, sentence in profiles.sources}
    lines = [
        f"format = {FORMAT}",
        f"family = {_toml(profiles.family)}",
        f"title = {_toml(profiles.title)}",
        f"licence = {_toml(profiles.licence)}",
        "",
        "[sources]",
        *(f"{key} = {_toml(sentence)}" for key, sentence in profiles.sources),
    ]
    for profile in profiles.profiles:
        lines += ["", "[[model]]", *_model_lines(profile, key_of)]
    for pair in profiles.pairs:
        lines += ["", "[[pair]]"]
        lines += [f"{key} = {_toml(getattr(pair, key))}" for key in _PAIR_FIELDS]
    return "\n".join(lines) + "\n"


_PAIR_FIELDS = tuple(PairRatio.__dataclass_fields__)


def _model_lines(profile: ModelProfile, key_of: Mapping[str, str]) -> list[str]:
    lines = [f"{key} = {_toml(getattr(profile, key))}" for key in ("name", "title", "aliases")]
    fields = profile_fields(profile).items()
    return [*lines, *(f"{field} = {_inline(entry, key_of)}" for field, entry in fields)]


def _inline(entry: Sourced[object], key_of: Mapping[str, str]) -> str:
    values = {
        **field_values(entry.value),
        "provenance": str(entry.provenance),
        "source": key_of.get(entry.source, entry.source),
    }
    return "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in values.items()) + " }"


def profile_fields(profile: ModelProfile) -> dict[str, Sourced[object]]:
    """Returns every known field of a profile by the name the file gives it."""
    fields: dict[str, Sourced[object]] = {
        f"compute.{gpu_type}": entry for gpu_type, entry in profile.compute
    }
    for field in _FIELDS:
        entry = getattr(profile, field)
        if entry is not None:
            fields[field] = entry
    return fields


def field_values(value: object) -> dict[str, object]:
    """Returns the values of one field as the file names them."""
    match value:
        case Network():
            rings = {"within": value.within, "across": value.across, "pair": value.pair}
            return {
                f"{side}_{key}": getattr(ring, key)
                for side, ring in rings.items()
                if ring is not None
                for key in ("latency_s", "bandwidth_bytes_per_s")
            }
        case tuple():
            return {key: [getattr(row, key) for row in value] for key in ("gpus", *_STAGES)}
        case str() | int() | float():
            return {"value": value}
        case Compute() | Batch() | MemoryLaw() | Curve() | Startup() | FitError() | Efficiency():
            return {key: getattr(value, key) for key in value.__dataclass_fields__}
    raise TypeError(f"no profile field holds a {type(value).__name__}")


def _toml(value: object) -> str:
    # A JSON text, number, truth or list of them is a TOML one.
    return json.dumps(value, ensure_ascii=False)
