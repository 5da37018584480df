"""A moment as Slurm's options write it: a date and time, or `now+2hours`."""

from __future__ import annotations

import re
from datetime import datetime

_UNIT_S = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_FROM_NOW = re.compile(r"now\+(\d{1,9})([a-z]*)", re.ASCII)
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")


def seconds_until(said: str, now: datetime | None) -> float:
    """Returns how far ahead of `now` a moment is. Raises ValueError if it is no moment, or past."""
    match = _FROM_NOW.fullmatch(said)
    if match:
        units = [u for u in _UNIT_S if u == (match[2] or "seconds") or u[:-1] == match[2]]
        if not units:
            raise ValueError(f"'{said}' counts in no unit of: {', '.join(_UNIT_S)}")
        return float(match[1]) * _UNIT_S[units[0]]
    moment = _moment(said)
    if now is None:
        raise ValueError(f"'{said}' cannot be counted from here: say now+2hours")
    ahead_s = (moment.replace(tzinfo=now.tzinfo) - now).total_seconds()
    if ahead_s <= 0:
        raise ValueError(f"{said} is past")
    return ahead_s


def _moment(said: str) -> datetime:
    for form in _FORMS:
        try:
            return datetime.strptime(said, form)
        except ValueError:
            continue
    raise ValueError(f"'{said}' is no moment, as in 2026-12-31T18:00 or now+2hours")
