"""Converts texts of dates to Unix seconds; local times without an offset use a time zone.

When clocks go back, an hour occurs twice. A local time in it means the first pass, unless the order
of the times of the same job requires the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Floats
from dovetail.core.units import DAY_S, WEEK_S

_FIRST_MONDAY_S = 4 * DAY_S
"""1970-01-05, the first Monday of Unix time."""

_BELIEVED_S = 1e11
"""Times more than 3,000 years from 1970 are invalid; no time zone has an offset there."""

REPEATED_HOUR = "local time in an hour that happened twice, read as its first pass"
"""The reason under which readers count `Moments.repeated`."""

SKIPPED_HOUR = "local time in an hour that the clocks skipped, read as one hour later"
"""The reason under which readers count `Moments.skipped`."""

_OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"
_Pass = Literal["earliest", "latest"]
_FORMAT = "%Y-%m-%d %H:%M:%S%.f"


@dataclass(frozen=True, slots=True)
class Moments:
    """A column of Unix seconds; null if the text is missing or not a time.

    `later` differs from `first` in an hour that occurs twice, where it is the second pass.
    `skipped` is the number of values in an hour that does not occur.
    """

    first: pl.Series
    later: pl.Series
    skipped: int = 0

    @property
    def repeated(self) -> int:
        """Returns the number of values in an hour that occurs twice."""
        return int((self.first != self.later).sum())

    def offset_s(self, zone: str) -> float:
        """Returns the UTC offset of a zone at the earliest time, 0 if unknown."""
        earliest = self.first.min()
        known = isinstance(earliest, float) and abs(earliest) < _BELIEVED_S
        return utc_offset_s(float(earliest), zone) if known else 0.0  # type: ignore[arg-type]

    def after(self, earlier: pl.Series) -> pl.Series:
        """Returns the first pass, or the second where the first is before `earlier`."""
        early = (self.first < earlier).fill_null(False)
        return self.first.zip_with(~early, self.later)

    def since(self, start: Moments) -> pl.Series:
        """Returns the seconds since `start`, with the second pass if the first is before it."""
        return self.after(start.first) - start.first


def moments(texts: pl.Series, zone: str) -> Moments:
    """Returns the times in a text column. Texts with an offset use it, the others `zone`."""
    clean = texts.cast(pl.String).str.strip_chars().str.replace("T", " ", literal=True)
    has_offset = clean.str.contains(_OFFSET).fill_null(False)
    # Both passes are parsed: which one is meant depends on the other times of the same row.
    bare = clean.str.replace(_OFFSET, "") if has_offset.any() else clean
    naive = bare.str.to_datetime(_FORMAT, strict=False, time_unit="us")
    if zone == "UTC":
        first = later = _seconds(naive)
        skipped = 0
    else:
        skipped = _skipped(naive, zone)
        first, later = _in_zone(naive, zone, "earliest"), _in_zone(naive, zone, "latest")
    if not has_offset.any():
        return Moments(first, later, skipped)
    absolute = _seconds(naive.dt.replace_time_zone("UTC")) - _offsets(clean)
    return Moments(absolute.zip_with(has_offset, first), absolute.zip_with(has_offset, later))


def check_zone(zone: str) -> None:
    """Raises InputError if the name is not a time zone."""
    try:
        # Polars includes the time zones, so the system needs none.
        pl.Series([0]).cast(pl.Datetime("us")).dt.replace_time_zone(zone)
    except pl.exceptions.PolarsError:
        from zoneinfo import available_timezones

        raise InputError(
            f"time zone '{zone}'", "is unknown", nearest(zone, available_timezones())
        ) from None


def utc_offset_s(epoch_s: float, zone: str) -> float:
    """Returns the UTC offset of a zone at a Unix time."""
    utc = pl.Series([int(epoch_s)]).cast(pl.Int64) * 1_000_000
    utc = utc.cast(pl.Datetime("us", "UTC"))
    return float(
        _seconds(utc.dt.convert_time_zone(zone).dt.replace_time_zone("UTC"))[0] - int(epoch_s)
    )


def wall_clock_s(times_s: Floats, epoch_s: float | None, zone: str) -> Floats:
    """Returns times of a trace on the clocks of its site, in seconds since some Monday 00:00.

    `epoch_s` is the Unix time of second 0. Without it second 0 is taken for a Monday 00:00.
    """
    if epoch_s is None:
        return times_s
    unix = pl.Series(np.asarray(times_s) + epoch_s) * 1e6
    local = unix.cast(pl.Int64).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone or "UTC")
    since = _seconds(local.dt.replace_time_zone(None)) - _FIRST_MONDAY_S
    return since.to_numpy().astype(np.float64)


def monday_before(epoch_s: float, offset_s: float) -> float:
    """Returns the Unix time of the last Monday 00:00 local time at or before a Unix time."""
    local = epoch_s + offset_s
    return (local - _FIRST_MONDAY_S) // WEEK_S * WEEK_S + _FIRST_MONDAY_S - offset_s


def _in_zone(naive: pl.Series, zone: str, ambiguous: _Pass) -> pl.Series:
    """Returns Unix seconds; a local time that the clocks skip means one hour later."""
    frame = pl.DataFrame({"t": naive})
    local = pl.col("t"), pl.col("t").dt.offset_by("1h")
    zoned = (t.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null") for t in local)
    return _seconds(frame.select(pl.coalesce(*zoned))["t"])


def _skipped(naive: pl.Series, zone: str) -> int:
    real = naive.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return real.null_count() - naive.null_count()


def _seconds(times: pl.Series) -> pl.Series:
    return times.dt.epoch("us").cast(pl.Float64) / 1e6


def _offsets(texts: pl.Series) -> pl.Series:
    """Returns the offset at the end of each text in seconds, 0 for none and for Z."""
    frame = pl.DataFrame({"t": texts})
    parts = pl.col("t").str.extract_groups(r"([+-])(\d{2}):?(\d{2})$")
    sign = pl.when(parts.struct[0] == "-").then(-1.0).otherwise(1.0)
    hours = parts.struct[1].cast(pl.Float64) * 3600 + parts.struct[2].cast(pl.Float64) * 60
    return frame.select((sign * hours).fill_null(0.0).alias("t"))["t"]
