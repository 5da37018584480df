"""The order and the look of each policy: the same in every table and every picture.

What the log recorded comes first and is grey. The others are listed by mean JCT, the shortest
first; a colour goes with the place on the command line, so that it stays when a policy
overtakes another. A row that is told true lengths has the colour of its policy, dashed or hatched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.record.result import KNOWN_SUFFIX, RECORDED, Comparison, RunResult

RECORDED_COLOUR = "#7d8590"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31")
"""Okabe and Ito's colours, distinct for colour-blind readers; black and yellow, which vanish on
a dark or a white page, are left out."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How a row is marked: the colour of its policy, hatched where it is told true lengths."""

    colour: str
    is_told: bool = False


def marks(names: Iterable[str]) -> dict[str, Mark]:
    """Returns the mark of each row, from the names in the order of the command line."""
    return {n: Mark(colour(place), is_told(n)) for n, place in colour_places(names).items()}


def is_told(name: str) -> bool:
    """Returns whether a row is told true lengths, beside the same policy that is not."""
    return name.endswith(KNOWN_SUFFIX)


def names_in_order(comparison: Comparison) -> list[str]:
    """Returns the rows that have a result, in the order of the table."""
    ranked = [name for name in comparison.ranked["policy"] if name in comparison.results]
    return [*ranked, *in_order({n: r for n, r in comparison.results.items() if n not in ranked})]


def ordered(results: Mapping[str, RunResult], order: Sequence[str] = ()) -> list[str]:
    """Returns the names in an order that is given, else in their own."""
    return list(order) or in_order(results)


def in_order(results: Mapping[str, RunResult]) -> list[str]:
    """Returns the names: `recorded`, then by mean JCT; those told true lengths last."""

    def key(name: str) -> tuple[bool, bool, float, str]:
        mean_s = results[name].number("avg_jct_s")
        mean_s = float("inf") if mean_s is None else mean_s
        return (name != RECORDED, is_told(name), mean_s, name)

    return sorted(results, key=key)


def rows_in_order(comparison: Comparison) -> list[dict[str, float]]:
    """Returns the rows of the table: `recorded`, then policies, then those told true lengths."""
    rows: list[dict[str, float]] = comparison.ranked.to_dicts()
    return rows


def best_of(comparison: Comparison) -> str:
    """Returns the policy with the shortest mean JCT, told what a site knows."""
    return comparison.best or comparison.baseline


def advised(comparison: Comparison) -> str:
    """Returns the row that a reader could act on: the best deployable one, else the best."""
    return comparison.deployable or best_of(comparison)


def colour_places(names: Iterable[str]) -> dict[str, int]:
    """Returns the place of each policy among the colours; the record takes none, and is -1.

    A row that is told true lengths has the place of the same policy that is not.
    """
    places: dict[str, int] = {}
    whole = list(dict.fromkeys(names))
    for name in sorted(whole, key=is_told):
        places[name] = places.get(
            name.removesuffix(KNOWN_SUFFIX),
            -1 if name == RECORDED else max([-1, *places.values()]) + 1,
        )
    return {name: places[name] for name in whole}


def colour(place: int) -> str:
    """Returns the colour at a place; colours repeat when they run out."""
    return RECORDED_COLOUR if place < 0 else PALETTE[place % len(PALETTE)]
