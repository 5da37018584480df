"""The order and the colour of each policy: the same in every table and every picture.

What the log recorded comes first and is grey. The others are listed by mean JCT, the shortest
first; a colour goes with the place on the command line, so that it stays when a policy
overtakes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.record.result import KNOWN_SUFFIX, RECORDED, Comparison, RunResult

RECORDED_COLOUR = "#7d8590"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31")
"""Okabe and Ito's colours, distinct for colour-blind readers; black and yellow, which vanish on
a dark or a white page, are left out."""


def in_order(results: Mapping[str, RunResult]) -> list[str]:
    """Returns the names: `recorded`, then by mean JCT; those told true lengths last."""

    def key(name: str) -> tuple[bool, bool, float, str]:
        mean_s = results[name].number("avg_jct_s")
        mean_s = float("inf") if mean_s is None else mean_s
        return (name != RECORDED, name.endswith(KNOWN_SUFFIX), mean_s, name)

    return sorted(results, key=key)


def rows_in_order(comparison: Comparison) -> list[dict[str, float]]:
    """Returns the rows of the table: `recorded`, then policies, then those told true lengths."""
    rows: list[dict[str, float]] = comparison.ranked.to_dicts()
    return rows


def best_of(comparison: Comparison) -> str:
    """Returns the policy with the shortest mean JCT that a site could run."""
    return comparison.best or comparison.baseline


def colour_places(names: Iterable[str]) -> dict[str, int]:
    """Returns the place of each policy among the colours; the record takes none, and is -1."""
    places: dict[str, int] = {}
    for name in dict.fromkeys(names):
        places[name] = -1 if name == RECORDED else sum(p >= 0 for p in places.values())
    return places


def colour(place: int) -> str:
    """Returns the colour at a place; colours repeat when they run out."""
    return RECORDED_COLOUR if place < 0 else PALETTE[place % len(PALETTE)]
