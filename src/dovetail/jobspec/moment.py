"""Parses the dates and times of Slurm's options: `now+2hours`, `16:00`, `tomorrow`, or a date."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

_UNIT_S = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_FROM_NOW = re.compile(r"now(?:\+(\d{1,9})([a-z]*))?", re.ASCII)
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCK_FORMS = ("%H:%M:%S", "%H:%M")
_TIME_NAMES = {"midnight": time(0), "noon": time(12), "teatime": time(16)}


def seconds_until(text: str, now: datetime | None) -> float:
    """Returns the seconds from `now` to a date or time. Raises ValueError if it is past or invalid.

    A time of day means its next occurrence, as in Slurm.
    """
    match = _FROM_NOW.fullmatch(text)
    if match:
        units = [u for u in _UNIT_S if u == (match[2] or "seconds") or u[:-1] == match[2]]
        if not units:
            raise ValueError(f"'{text}' has an unknown unit; known are: {', '.join(_UNIT_S)}")
        return float(match[1] or 0) * _UNIT_S[units[0]]
    if now is None:
        raise ValueError(f"'{text}' is not supported here: write now+2hours")
    moment = _moment(text, now.replace(tzinfo=None))
    ahead_s = (moment - now.replace(tzinfo=None)).total_seconds()
    if ahead_s <= 0:
        raise ValueError(f"{text} is in the past")
    return ahead_s


def _moment(text: str, now: datetime) -> datetime:
    for form in _FORMS:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    if text == "tomorrow":
        return datetime.combine(now.date() + timedelta(days=1), time(0))
    for form in _CLOCK_FORMS:
        try:
            clock = _TIME_NAMES.get(text) or datetime.strptime(text, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), clock)
        return today if today > now else today + timedelta(days=1)
    raise ValueError(f"'{text}' is not a date or time, as in now+2hours, 16:00 or 2026-12-31T18:00")
