"""A moment as Slurm's options write it: `now+2hours`, `16:00`, `tomorrow`, or a date and time."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

_UNIT_S = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_FROM_NOW = re.compile(r"now(?:\+(\d{1,9})([a-z]*))?", re.ASCII)
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCK_FORMS = ("%H:%M:%S", "%H:%M")
_CALLED = {"midnight": time(0), "noon": time(12), "teatime": time(16)}


def seconds_until(said: str, now: datetime | None) -> float:
    """Returns how far ahead of `now` a moment is. Raises ValueError if it is no moment, or past.

    A time of day is the next one, as for Slurm.
    """
    match = _FROM_NOW.fullmatch(said)
    if match:
        units = [u for u in _UNIT_S if u == (match[2] or "seconds") or u[:-1] == match[2]]
        if not units:
            raise ValueError(f"'{said}' counts in no unit of: {', '.join(_UNIT_S)}")
        return float(match[1] or 0) * _UNIT_S[units[0]]
    if now is None:
        raise ValueError(f"'{said}' cannot be counted from here: say now+2hours")
    moment = _moment(said, now.replace(tzinfo=None))
    ahead_s = (moment - now.replace(tzinfo=None)).total_seconds()
    if ahead_s <= 0:
        raise ValueError(f"{said} is past")
    return ahead_s


def _moment(said: str, now: datetime) -> datetime:
    for form in _FORMS:
        try:
            return datetime.strptime(said, form)
        except ValueError:
            continue
    if said == "tomorrow":
        return datetime.combine(now.date() + timedelta(days=1), time(0))
    for form in _CLOCK_FORMS:
        try:
            clock = _CALLED.get(said) or datetime.strptime(said, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), clock)
        return today if today > now else today + timedelta(days=1)
    raise ValueError(f"'{said}' is no moment, as in now+2hours, 16:00 or 2026-12-31T18:00")
