"""Profile sets as TOML files: one set is the models measured on one testbed.

Every field of a model is a table with its values, a `provenance` and a `source`; the source
is a key of the file's `[sources]` or a sentence of its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """The models of one source, and what was measured of them in pairs."""

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
    except (OSError, UnicodeDecodeError) as trouble:
        why = trouble.strerror if isinstance(trouble, OSError) else trouble
        raise InputError(str(path), f"cannot be read: {why}") from trouble
    return parse_profiles(text, where=str(path))


def parse_profiles(text: str, *, where: str) -> ProfileSet:
    """Returns the profile set written in `text`. Raises InputError."""
    try:
        root = tomllib.loads(text)
    except tomllib.TOMLDecodeError as trouble:
        raise InputError(where, f"is not TOML: {trouble}") from trouble
    if root.get("format") != FORMAT:
        found = root.get("format")
        raise InputError(where, f"format is {found!r}", f"this version reads format = {FORMAT}")
    reader = _Reader(where, root)
    return reader.profile_set()


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
        family = self._text(self._root, "family", self._where)
        models = [self._model(family, row) for row in self._rows("model")]
        if len({m.name for m in models}) < len(models):
            raise InputError(self._where, "two models have the same name")
        return ProfileSet(
            family=family,
            title=self._text(self._root, "title", self._where),
            licence=self._text(self._root, "licence", self._where),
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
        name = self._text(row, "name", f"{self._where}: a model")
        where = f"{self._where}: model {name}"
        aliases = row.get("aliases", [])
        if not isinstance(aliases, list):
            raise InputError(where, "aliases must be a list")
        try:
            return ModelProfile(
                name=name,
                family=family,
                title=self._text(row, "title", where),
                aliases=tuple(str(alias) for alias in aliases),
                **self._fields(row, where),  # type: ignore[arg-type]
            )
        except (ValueError, TypeError) as trouble:
            raise InputError(where, str(trouble)) from trouble

    def _fields(self, row: Table, where: str) -> dict[str, object]:
        found: dict[str, object] = {}
        for field, read in _FIELDS.items():
            if field in row:
                table = self._table(row[field], f"{where}, field {field}")
                found[field] = self._sourced(table, read(table, f"{where}, {field}"), where)
            elif field not in _OPTIONAL:
                raise InputError(where, f"field {field} is missing")
        compute = self._table(row.get("compute"), f"{where}, field compute")
        found["compute"] = tuple(
            (gpu_type, self._compute(entry, f"{where}, compute.{gpu_type}"))
            for gpu_type, entry in compute.items()
        )
        return found

    def _compute(self, entry: object, where: str) -> Sourced[Compute]:
        table = self._table(entry, where)
        value = Compute(_number(table, "a_s", where), _number(table, "b_s_per_sample", where))
        return self._sourced(table, value, where)

    def _sourced(self, table: Table, value: T, where: str) -> Sourced[T]:
        given = str(table.get("provenance", ""))
        if given not in list(Provenance):
            known = ", ".join(Provenance)
            raise InputError(where, f"provenance '{given}' is unknown", f"one of {known}")
        source = self._text(table, "source", where)
        return Sourced(value, Provenance(given), self._sources.get(source, source))

    def _pair(self, row: Table) -> PairRatio:
        where = f"{self._where}: a pair"
        try:
            return PairRatio(
                self._text(row, "first", where),
                _count(row, "first_batch", where),
                self._text(row, "second", where),
                _count(row, "second_batch", where),
                _number(row, "first_ratio", where),
                _number(row, "second_ratio", where),
            )
        except ValueError as trouble:
            raise InputError(where, str(trouble)) from trouble

    def _table(self, found: object, where: str) -> Table:
        if not isinstance(found, dict):
            raise InputError(where, "must be a table with provenance and source")
        return found

    def _text(self, table: Table, key: str, where: str) -> str:
        found = table.get(key)
        if not isinstance(found, str) or not found:
            raise InputError(where, f"{key} is missing or not a text")
        return found


def _number(table: Table, key: str, where: str) -> float:
    found = table.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(where, f"{key} is missing or not a number")
    if not -HUGE < found < HUGE:
        raise InputError(where, f"{key} is not a number that can be: {found}")
    return float(found)


def _count(table: Table, key: str, where: str) -> int:
    found = _number(table, key, where)
    if found != int(found):
        raise InputError(where, f"{key} must be a whole number, not {found}")
    return int(found)


def _numbers(table: Table, key: str, where: str) -> tuple[float, ...]:
    found = table.get(key)
    if not isinstance(found, list) or not found:
        raise InputError(where, f"{key} is missing or not a list of numbers")
    return tuple(_number({key: entry}, key, where) for entry in found)


def _counts(table: Table, key: str, where: str) -> tuple[int, ...]:
    return tuple(_count({key: n}, key, where) for n in _numbers(table, key, where))


def _read_batch(table: Table, where: str) -> Batch:
    size, largest = _count(table, "size", where), _count(table, "max_per_gpu", where)
    return Batch(size, table.get("per_gpu") is True, largest)


def _read_memory(table: Table, where: str) -> MemoryLaw:
    return MemoryLaw(
        _number(table, "fixed_bytes", where), _number(table, "per_sample_bytes", where)
    )


def _read_network(table: Table, where: str) -> Network:
    def ring(side: str) -> RingLink:
        return RingLink(
            _number(table, f"{side}_latency_s", where),
            _number(table, f"{side}_bandwidth_bytes_per_s", where),
        )

    return Network(
        ring("within"), ring("across"), ring("pair") if "pair_latency_s" in table else None
    )


def _read_curve(table: Table, where: str) -> Curve:
    return Curve(_counts(table, "gpus", where), _numbers(table, "iteration_s", where))


def _read_stages(table: Table, where: str) -> tuple[StageTimes, ...]:
    columns = [_numbers(table, key, where) for key in _STAGES]
    try:
        rows = list(zip(_counts(table, "gpus", where), *columns, strict=True))
    except ValueError as trouble:
        raise InputError(where, "columns differ in length") from trouble
    return tuple(StageTimes(*row) for row in rows)


def _read_startup(table: Table, where: str) -> Startup:
    return Startup(_counts(table, "gpus", where), _numbers(table, "start_s", where))


def _read_fit_error(table: Table, where: str) -> FitError:
    rows, mean, p90, worst = (
        _number(table, key, where) for key in ("rows", "mean", "p90", "worst")
    )
    return FitError(int(rows), mean, p90, worst)


def _read_efficiency(table: Table, where: str) -> Efficiency:
    return Efficiency(
        _count(table, "initial_batch", where),
        _count(table, "max_batch", where),
        _count(table, "least_per_gpu", where),
        _count(table, "most_per_gpu", where),
        _numbers(table, "progress", where),
        _numbers(table, "noise_scale", where),
    )


_STAGES = ("storage_s", "cpu_s", "gpu_s", "network_s")
_OPTIONAL = ("curve", "stages", "startup", "fit_error", "efficiency")
_FIELDS = {
    "gpu_type": lambda table, where: str(table.get("value", "")),
    "gpus_per_node": lambda table, where: _count(table, "value", where),
    "batch": _read_batch,
    "max_gpus": lambda table, where: _count(table, "value", where),
    "parameters": lambda table, where: _number(table, "value", where),
    "gradient_bytes": lambda table, where: _number(table, "value", where),
    "overlap": lambda table, where: _number(table, "value", where),
    "network": _read_network,
    "memory": _read_memory,
    "curve": _read_curve,
    "stages": _read_stages,
    "startup": _read_startup,
    "fit_error": _read_fit_error,
    "efficiency": _read_efficiency,
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
    lines = [
        f"name = {_toml(profile.name)}",
        f"title = {_toml(profile.title)}",
        f"aliases = {_toml(list(profile.aliases))}",
    ]
    lines += [
        f"{field} = {_inline(entry, key_of)}" for field, entry in profile_fields(profile).items()
    ]
    return lines


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
        found = getattr(profile, field)
        if found is not None:
            fields[field] = found
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
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case int() | float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(_toml(entry) for entry in _sequence(value)) + "]"
    raise TypeError(f"cannot write {value!r}")


def _sequence(value: Sequence[object]) -> Sequence[object]:
    return value
