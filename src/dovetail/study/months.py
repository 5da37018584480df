"""The months of a run: those of the calendar where the clock has a date, else 30 days each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from dovetail.core.errors import InputError
from dovetail.core.trace import ImportRecord
from dovetail.study.prices import MONTH_S
from dovetail.traces.clock import check_zone, moments

UNIX_LEAST_S = 6e8
"""Times from here on (1989) count as Unix seconds: no run is 19 years long."""


@dataclass(frozen=True, slots=True)
class Months:
    """Where months begin. `epoch_s` is the Unix time of second 0, None where it is not known.

    Without one, months are 30 days long and count from `first_s`.
    """

    first_s: float
    epoch_s: float | None = None
    zone: str = "UTC"

    @property
    def words(self) -> str:
        """Returns what a month is here."""
        if self.epoch_s is None:
            return "months are 30 days each from the first submission, as the trace has no dates"
        return f"calendar months in time zone {self.zone}"

    def between(self, from_s: float, to_s: float) -> Iterator[tuple[str, float, float]]:
        """Yields name, start and end of each month that overlaps a time."""
        if self.epoch_s is None:
            number = int((from_s - self.first_s) // MONTH_S)
            while (start_s := self.first_s + number * MONTH_S) < to_s:
                yield f"month {number + 1}", start_s, start_s + MONTH_S
                number += 1
            return
        year, month = self._month_of(from_s + self.epoch_s)
        while (start_s := self._start_s(year, month) - self.epoch_s) < to_s:
            following = (year + month // 12, month % 12 + 1)
            yield f"{year}-{month:02}", start_s, self._start_s(*following) - self.epoch_s
            year, month = following

    def _month_of(self, unix_s: float) -> tuple[int, int]:
        moment = pl.Series([int(unix_s // 1) * 1_000_000]).cast(pl.Datetime("us", "UTC"))
        local = moment.dt.convert_time_zone(self.zone)
        return int(local.dt.year()[0]), int(local.dt.month()[0])

    def _start_s(self, year: int, month: int) -> float:
        return _unix_s(f"{year:04}-{month:02}-01 00:00:00", self.zone)


def _unix_s(text: str, zone: str) -> float:
    return float(moments(pl.Series([text]), zone).first[0])


def _begun(first_s: float, start: str, zone: str) -> Months:
    """Returns the months of a run whose second 0 is at a date. Raises InputError."""
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise InputError(
            "--start", f"'{start}' is not a date", "as in 2024-03-04 or 2024-03-04T08:00"
        ) from None
    if first_s >= UNIX_LEAST_S:
        raise InputError("--start", "the times of the trace are dates already", "leave it out")
    text = moment.replace(tzinfo=None).isoformat(" ", "seconds")
    return Months(first_s, moment.timestamp() if moment.tzinfo else _unix_s(text, zone), zone)


def months_of(first_s: float, start: str, zone: str, log: ImportRecord | None = None) -> Months:
    """Returns the months of a run whose first submission is at `first_s`.

    Without `start` and `zone`, those of the import of its `log` count. `start` is the date of
    second 0 (`2024-03-04`, or with a time), '' where the times are Unix seconds or have no date.
    `zone` is '' for UTC. Raises InputError.
    """
    if zone:
        check_zone(zone)
    of_log = zone or (log.zone if log else "") or "UTC"
    if start:
        if log is not None and log.epoch_s is not None:
            raise InputError("--start", "the import recorded the dates of the log", "leave it out")
        return _begun(first_s, start, of_log)
    if first_s >= UNIX_LEAST_S:
        return Months(first_s, 0.0, of_log)
    if log is not None and log.epoch_s is not None:
        return Months(first_s, log.epoch_s, of_log)
    if zone:
        raise InputError(
            "--timezone",
            "the times of the trace have no date, so they have no calendar months",
            "give the date of its second 0, as in --start 2024-03-04",
        )
    return Months(first_s)
