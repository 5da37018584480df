"""What a study finds: numbers beside the paper's, each with a verdict, and pictures."""

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
class Finding:
    """One number of a table or figure of the paper, as we find it.

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


def at_most(smaller: float, larger: float) -> bool:
    """Tells whether one result is below another, or ties with it."""
    return smaller <= larger * (1 + TIE)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure like the paper's: a file name, words, and how to draw it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table with columns of its own; the first `words` columns are words, not numbers."""

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a study found; `notes` say what it was run on and what stands in for what."""

    rows: Sequence[Finding]
    pictures: Sequence[Picture] = ()
    notes: Sequence[str] = field(default=())
    sheets: Sequence[Sheet] = ()

    @property
    def verdicts(self) -> dict[str, int]:
        """Returns how many rows have each verdict."""
        counted = Counter(row.verdict for row in self.rows)
        return {verdict: counted[verdict] for verdict in VERDICTS}
