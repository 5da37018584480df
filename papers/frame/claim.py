"""What comes of a paper: its numbers beside ours, each with a verdict, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHIN, HOLDS, MISSED, SHOWN = "within", "holds", "missed", "no published value"
BESIDE = "no band"
"""What stands beside the paper's number without being held to it: what it was run on differs."""
VERDICTS = (WITHIN, HOLDS, MISSED, BESIDE, SHOWN)
TIE = 0.01
"""Two results closer than this are a tie, which breaks no order."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One number or rule of a table or figure of the paper, and ours.

    `band` is where ours must lie for `within`; `holds` says of a rule without a number (an
    order, a sign) whether it does. `why` explains a miss, or what stands in for the paper's.
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
    """All that came of a paper; `notes` say what it was run on and what stands in for what."""

    claims: Sequence[Claim]
    plots: Sequence[Plot] = ()
    notes: Sequence[str] = field(default=())
    tables: Sequence[Table] = ()

    @property
    def verdicts(self) -> dict[str, int]:
        """Returns how many rows have each verdict."""
        counted = Counter(row.verdict for row in self.claims)
        return {verdict: counted[verdict] for verdict in VERDICTS}
