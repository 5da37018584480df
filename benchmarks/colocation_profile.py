"""What the measured sets say: one profile of a machine, and tables of rates over those alone.

In the profile a set has its kinds, how far loaders work ahead, and for each way the rate of every
member in each repetition, with mean seconds of each stage (`used_s`) and of waiting for a turn
(`waited_s`). Ways named `alone` are the demands.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

ALONE, FREE, TOKENS, LOCK_STEP = "alone", "free", "tokens", "lock step"
ONE_AFTER_THE_OTHER, LIMIT, MPS = "one after the other", "limit", "MPS"


@dataclass(frozen=True, slots=True)
class Entry:
    """One way of one set. The first axis of every figure is the member.

    `rates_per_s` has one rate for each repetition; the rest are medians over them. `cores` are core
    seconds a second of the loader, the trainer's main thread, its other threads, and the peer.
    """

    kinds: tuple[str, ...]
    ahead: int
    way: str
    limited: int
    share: float
    offsets: tuple[int, ...]
    rates_per_s: tuple[tuple[float, ...], ...]
    used_s: tuple[tuple[float, ...], ...]
    waited_s: tuple[tuple[float, ...], ...]
    cores: tuple[tuple[float, ...], ...]

    @property
    def label(self) -> str:
        """Returns the way in words, with the member and share of a limit."""
        if self.way != LIMIT:
            return self.way
        return f"{self.kinds[self.limited]} limited to {self.share:.0%}"


@dataclass(frozen=True, slots=True)
class Profile:
    """All entries, with where and how they were measured."""

    where: Mapping[str, object]
    entries: tuple[Entry, ...]

    def alone(self, kind: str, ahead: int) -> Entry:
        """Returns what a kind does alone. Raises LookupError if that was not measured."""
        for each in self.entries:
            if each.kinds == (kind,) and each.ahead == ahead and each.way == ALONE:
                return each
        raise LookupError(f"{kind} was not measured alone, {ahead} ahead")

    def sums(self, entry: Entry) -> list[float]:
        """Returns the sum of rates over rates alone, for each repetition."""
        return [sum(each) for each in zip(*self.of_alone(entry), strict=True)]

    def of_alone(self, entry: Entry) -> list[list[float]]:
        """Returns rates over rates alone: a row a member, a column a repetition."""
        alone = [statistics.median(self.alone(k, entry.ahead).rates_per_s[0]) for k in entry.kinds]
        pairs = zip(entry.rates_per_s, alone, strict=True)
        return [[rate / by for rate in rates] for rates, by in pairs]

    def text(self) -> str:
        """Returns the profile as JSON, an entry a line."""
        lines = ",\n".join("  " + json.dumps(asdict(entry)) for entry in self.entries)
        return f'{{"where": {json.dumps(self.where, indent=1)},\n "entries": [\n{lines}\n]}}\n'


def read_profile(path: Path) -> Profile:
    """Reads what `Profile.text` wrote."""
    raw = json.loads(path.read_text())
    return Profile(raw["where"], tuple(entry_of(each) for each in raw["entries"]))


def entry_of(raw: Mapping[str, Any]) -> Entry:
    return Entry(**{field.name: tuples(raw[field.name]) for field in fields(Entry)})


def tuples(value: Any) -> Any:
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def joined(folder: Path, order: Sequence[str], where: Mapping[str, object]) -> Profile:
    """Joins the files of the sets, in the order of their names given."""
    entries: list[Entry] = []
    for name in order:
        if (folder / name).exists():
            entries += entries_of(json.loads((folder / name).read_text()))
    return Profile({**machine_words(), **where}, tuple(entries))


def entries_of(raw: Mapping[str, Any]) -> Iterator[Entry]:
    """Yields one entry for each way of a set's file, its repetitions joined."""
    ways: dict[str, list[Mapping[str, Any]]] = {}
    for cell in raw["cells"]:
        ways.setdefault(json.dumps(cell["way"]), []).append(cell)
    for cells in ways.values():
        way = cells[0]["way"]
        members = list(zip(*(cell["members"] for cell in cells), strict=True))
        yield Entry(
            tuple(raw["kinds"]),
            raw["ahead"],
            way["name"],
            way["limited"],
            way["share"],
            tuple(cells[0]["offsets"]) if way["name"] == LOCK_STEP else (),
            tuple(tuple(each["rate_per_s"] for each in cells) for cells in members),
            tuple(medians([each["used_s"] for each in cells]) for cells in members),
            tuple(medians([each["waited_s"] for each in cells]) for cells in members),
            tuple(medians([each["cores"] for each in cells]) for cells in members),
        )


def medians(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(statistics.median(column), 6) for column in zip(*rows, strict=True))


def machine_words() -> dict[str, object]:
    """Returns what kind of machine this is, without its name."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release().partition("-")[0],
        "date": date.today().isoformat(),
    }


# Tables.


def tables(profile: Profile) -> Iterator[str]:
    """Yields the lines of the tables."""
    for ahead in sorted({entry.ahead for entry in profile.entries}):
        yield f"\nloaders {ahead} batches ahead" if ahead else "\nloaders not ahead"
        yield from demands(profile, ahead)
        yield from medians_of_sets(profile, ahead)
        yield from sums_of_sets(profile, ahead)
        yield from limits(profile, ahead)


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def head(*cells: str) -> Iterator[str]:
    yield ""
    yield row(*cells)
    yield "|" + " --- |" * len(cells)


def demands(profile: Profile, ahead: int) -> Iterator[str]:
    """Yields what each kind takes alone, in ms."""
    yield from head("alone, ms", "storage", "CPU", "compute", "network", "iteration")
    for entry in profile.entries:
        if entry.ahead == ahead and entry.way == ALONE:
            iteration_s = 1 / statistics.median(entry.rates_per_s[0])
            cells = [*entry.used_s[0], iteration_s]
            yield row(entry.kinds[0], *(f"{1e3 * each:.1f}" for each in cells))


def medians_of_sets(profile: Profile, ahead: int) -> Iterator[str]:
    """Yields the median of the sums of all sets of a size, the least and the most."""
    here = [e for e in profile.entries if e.ahead == ahead and len(e.kinds) > 1 and e.way != LIMIT]
    ways = list(dict.fromkeys(e.way for e in here))
    yield from head("sum of rates over alone", *ways)
    for size in sorted({len(e.kinds) for e in here}):
        cells = []
        for way in ways:
            entries = [e for e in here if len(e.kinds) == size and e.way == way]
            sums = [statistics.fmean(profile.sums(e)) for e in entries]
            cells.append(spread(sums) if sums else "")
        yield row(f"{len({e.kinds for e in here if len(e.kinds) == size})} sets of {size}", *cells)


def spread(values: Sequence[float]) -> str:
    """Returns the median in words, with the least and the most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def sums_of_sets(profile: Profile, ahead: int) -> Iterator[str]:
    """Yields the sum of rates over rates alone of each set in each way but limits."""
    here = [e for e in profile.entries if e.ahead == ahead and len(e.kinds) > 1]
    ways = [way for way in dict.fromkeys(e.way for e in here) if way != LIMIT]
    yield from head("set", *ways)
    for each in dict.fromkeys(e.kinds for e in here):
        found = {e.way: e for e in here if e.kinds == each}
        cells = [sum_words(profile, found[way]) if way in found else "" for way in ways]
        yield row(" + ".join(each), *cells)


def sum_words(profile: Profile, entry: Entry) -> str:
    """Returns the mean sum, half its range over repetitions, and every member's rate."""
    sums = profile.sums(entry)
    each = ", ".join(f"{statistics.fmean(rates):.2f}" for rates in profile.of_alone(entry))
    return f"{statistics.fmean(sums):.2f} ± {(max(sums) - min(sums)) / 2:.2f} ({each})"


def limits(profile: Profile, ahead: int) -> Iterator[str]:
    """Yields pairs, one member of which is limited, beside free competition."""
    limited = [e for e in profile.entries if e.ahead == ahead and e.way == LIMIT]
    yield from head("limits", "sum")
    for entry in limited:
        yield row(f"{' + '.join(entry.kinds)}: {entry.label}", sum_words(profile, entry))
