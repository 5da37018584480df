"""A paper reproduced: its numbers beside ours, each with a verdict, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHIN, HOLDS, MISSED, SHOWN = "within", "holds", "missed", "no published value"
BESIDE = "no band"
"""The verdict of a row beside a published number without a band: it was measured on other jobs."""
VERDICTS = (WITHIN, HOLDS, MISSED, BESIDE, SHOWN)
TIE = 0.01
"""Two results closer than this are a tie, which breaks no order."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One number or rule of a table or figure of the paper, and ours.

    `band` is where ours must lie for `within`; `holds` is for a rule without a number (an order, a
    sign). `why` explains a miss, or what stands in for the paper's.
    """

    part: str
    what: str
    ours: float | None = None
    unit: str = ""
    published: float | None = None
    band: tuple[float, float] | None = None
    holds: bool | None = None
    why: str = ""

    @property
    def verdict(self) -> str:
        """Returns one of `VERDICTS`."""
        if self.holds is not None:
            return HOLDS if self.holds else MISSED
        if self.band is None:
            return SHOWN if self.published is None else BESIDE
        low, high = self.band
        return WITHIN if self.ours is not None and low <= self.ours <= high else MISSED


def ratio_band(published: float, spread: float) -> tuple[float, float]:
    """Returns the band of a published ratio, give or take a relative spread."""
    return published * (1 - spread), published * (1 + spread)


def near(
    part: str,
    what: str,
    ours: float,
    unit: str,
    published: float | None,
    spread: float,
    holds: bool | None = None,
    why: str = "",
) -> Claim:
    """Returns a claim held to a published number, give or take a relative spread, if there is one.

    Without one `holds` says whether the rule does.
    """
    band = None if published is None else ratio_band(published, spread)
    return Claim(part, what, ours, unit, published, band, holds, why)


def ordered(
    part: str, what: str, smaller: float, larger: float, why: str = "", unit: str = "x"
) -> Claim:
    """Returns a claim of an order of two results, beside how many times the larger is."""
    return Claim(part, what, larger / smaller, unit, holds=at_most(smaller, larger), why=why)


def at_most(smaller: float, larger: float) -> bool:
    """Returns whether one result is below another, or ties with it."""
    return smaller <= larger * (1 + TIE)


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure like the paper's: a file name, words, and how to draw it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with columns of its own; the first `words` columns are words, not numbers."""

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A paper's tables and figures anew; `notes` name the traces and what stands in for what."""

    title: str
    covers: str
    claims: Sequence[Claim]
    plots: Sequence[Plot] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()

    @property
    def verdicts(self) -> dict[str, int]:
        """Returns how many rows have each verdict."""
        count = Counter(row.verdict for row in self.claims)
        return {verdict: count[verdict] for verdict in VERDICTS}
