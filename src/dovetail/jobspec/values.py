"""Parses the values of job spec fields: durations, dates, sizes, ranges, dependencies.

Each parser returns a value or raises ValueError with a message about the text; the caller adds the
file and the line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from dovetail.core.units import RESTART_S
from dovetail.wire.spec import ASKED, INFINITE, SINGLETON, Mount
from dovetail.wire.submission import TASKS_MAX

INDEX_MAX = 4_000_000
"""The largest index of an array (Slurm's own bound)."""

_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_ENDLESS = ("unlimited", "infinite")
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)
_INDICES = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_SLURM_UNIT_S = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
_FROM_NOW = re.compile(r"now(?:\+(\d{1,9})([a-z]*))?", re.ASCII)
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_CLOCK_FORMS = ("%H:%M:%S", "%H:%M")
_TIME_NAMES = {"midnight": time(0), "noon": time(12), "teatime": time(16)}


@dataclass(frozen=True, slots=True)
class Gpus:
    """The requested number of GPUs, and the range in which the policy may change it."""

    low: int
    requested: int
    high: int


@dataclass(frozen=True, slots=True)
class After:
    """A dependency on a job.

    `job` is the number of a submitted job or the name of an earlier job in the file, optionally
    followed by `_3` for a task of an array; empty for `singleton`.
    """

    kind: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """The indices of an array, and the most tasks that may run at once (0: no limit)."""

    indices: tuple[int, ...] = ()
    at_once: int = 0


def seconds(text: str) -> float:
    """Returns a duration: `90s`, `1h30m`, or a form of Slurm with `:` or `-`; no bare number."""
    if text.lower() in _ENDLESS:
        return INFINITE
    if _SPAN.fullmatch(text):
        return sum(float(n) * _UNIT_S[unit] for n, unit in _PIECE.findall(text))
    if (":" in text or "-" in text) and _CLOCK.fullmatch(text):
        return slurm_seconds(text)
    if text.isdecimal():
        raise ValueError(f"{text} lacks a unit: write {text}s, {text}m, {text}h or {text}d")
    raise ValueError(f"'{text}' is not a duration, as in 90s, 1h30m or 1-12:00:00")


def some_seconds(text: str) -> float:
    """Returns a duration above 0."""
    duration_s = seconds(text)
    if not duration_s:
        raise ValueError("it must be above 0")
    return duration_s


def elastic(text: str) -> float:
    """Returns the seconds that a resize of a job costs: `restart`, or `restart:45s` if known."""
    word, colon, cost = text.partition(":")
    if word != "restart":
        raise ValueError(f"it is restart, or restart:45s with what one costs, not '{text[:60]}'")
    return some_seconds(cost) if colon else RESTART_S


def limit_seconds(text: str) -> float:
    """Returns a time limit of a command line, in a form of Slurm or with units; 0: no limit."""
    if _SPAN.fullmatch(text):
        return some_seconds(text)
    return slurm_seconds(text) or INFINITE


def span(text: str) -> float:
    """Returns a duration with units, for fields where `16:00` would be a time of day."""
    if not _SPAN.fullmatch(text):
        raise ValueError(f"'{text}' is not a duration with units, as in 90s, 1h30m or 2d")
    return seconds(text)


def slurm_seconds(text: str) -> float:
    """Returns a duration of Slurm: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    if text.lower() in _ENDLESS:
        return INFINITE
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(
            f"'{text}' is not a duration, as in 30, 30:00, 2:00:00, 1-12 or 1-12:00:00"
        )
    days, *rest = match.groups()
    parts = [float(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, second = (*parts, 0.0, 0.0)[:3]
        return float(days) * 86400 + hours * 3600 + minutes * 60 + second
    if len(parts) == 3:
        return parts[0] * 3600 + parts[1] * 60 + parts[2]
    return parts[0] * 60 + (parts[1] if len(parts) == 2 else 0.0)


def seconds_until(text: str, now: datetime | None) -> float:
    """Returns the seconds from `now` to a date or time. Raises ValueError if it is past or invalid.

    A time of day means its next occurrence, as in Slurm.
    """
    match = _FROM_NOW.fullmatch(text)
    if match:
        units = [u for u in _SLURM_UNIT_S if u == (match[2] or "seconds") or u[:-1] == match[2]]
        if not units:
            raise ValueError(f"'{text}' has an unknown unit; known are: {', '.join(_SLURM_UNIT_S)}")
        return float(match[1] or 0) * _SLURM_UNIT_S[units[0]]
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


def size_bytes(text: str, unit: str = "") -> float:
    """Returns a size such as `512M` or `16 GiB`; `unit` is that of a bare number."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a size, as in 512M or 16G")
    return float(match[1]) * _BYTES[match[2].upper() or ("" if "b" in text.lower() else unit)]


def memory_bytes(text: str) -> float:
    """Returns a size with a unit."""
    if text.strip().isdecimal() and int(text):
        raise ValueError(f"{text} lacks a unit: write {text}M or {text}G")
    return size_bytes(text)


def flag(text: str) -> bool:
    """Returns a boolean: yes, no, true or false."""
    known = {"yes": True, "true": True, "no": False, "false": False}
    if text.lower() not in known:
        raise ValueError(f"'{text}' is neither yes nor no")
    return known[text.lower()]


def whole(text: str) -> int:
    """Returns a whole number of 0 or more."""
    if not (text.isdecimal() and text.isascii() and len(text) <= 15):
        raise ValueError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def one_or_more(text: str) -> int:
    """Returns a whole number of 1 or more."""
    value = whole(text)
    if not value:
        raise ValueError("it must be 1 or more")
    return value


def number(text: str) -> float:
    """Returns a number."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"'{text}' is not a number")
    return float(text)


def words(text: str) -> tuple[str, ...]:
    """Returns the words of a command, split as by a shell but not expanded."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"cannot split the text into words: {error}") from None


def gpus(text: str) -> Gpus:
    """Returns `2`, or a range `1..4`, which requests the least and may grow to the most."""
    low, dots, high = text.partition("..")
    try:
        least = whole(low.strip())
        most = whole(high.strip()) if dots else least
    except ValueError:
        least = most = 0
    if not 1 <= least <= most:
        raise ValueError(
            f"'{text}' is not a number of GPUs: specify 1 or more, or a range as in 1..4"
        )
    return Gpus(least, least, most)


def array(text: str) -> Array:
    """Returns an array of Slurm: its indices, and after a % the most tasks that run at once."""
    ranges, percent, most = text.partition("%")
    if percent and (not most.isdecimal() or not 0 < whole(most) <= TASKS_MAX):
        raise ValueError(f"'%{most}' is not a number of tasks from 1 to {TASKS_MAX}")
    return Array(indices(ranges), whole(most) if percent else 0)


def indices(text: str) -> tuple[int, ...]:
    """Returns the sorted indices of an array of Slurm: `0-9`, `1,3,8`, `0-15:4`."""
    indices_seen: dict[int, None] = {}
    for part in text.split(","):
        match = _INDICES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"'{text}' is not a list of indices, as in 0-9, 1,3,8 or 0-15:4")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1 or last > INDEX_MAX:
            raise ValueError(f"'{part}' is not a range of indices from 0 to {INDEX_MAX}")
        if len(range(first, last + 1, step)) + len(indices_seen) > TASKS_MAX:
            raise ValueError(f"'{text}' has more than {TASKS_MAX} tasks")
        indices_seen |= dict.fromkeys(range(first, last + 1, step))
    return tuple(sorted(indices_seen))


def after(text: str) -> tuple[After, ...]:
    """Returns dependencies of Slurm on numbers or names: `afterok:12:13_2,afterany:4`."""
    dependencies = []
    if "?" in text:
        raise ValueError(
            "alternatives (?) are not supported: separate jobs by commas to wait for all of them"
        )
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        if kind not in ASKED:
            raise ValueError(f"'{part}' must begin with one of {', '.join(ASKED)}")
        if kind == SINGLETON and not jobs:
            dependencies.append(After(kind))
            continue
        if kind == SINGLETON or not jobs or not all(job.strip() for job in jobs):
            wants = "takes no job" if kind == SINGLETON else f"needs a job, as in {kind}:12"
            raise ValueError(f"'{part}' {wants}")
        if any(re.fullmatch(r"\d+(_\d+)?\+\d+", job) for job in jobs):
            raise ValueError(f"'{part}': a delay (+) is not supported: use the field begin")
        dependencies += [After(kind, job.strip()) for job in jobs]
    return tuple(dependencies)


def mounts(text: str) -> tuple[Mount, ...]:
    """Returns the mounts of a container as Pyxis writes them: `/data:/data:ro,/scratch`."""
    found = []
    for part in text.split(","):
        source, *rest = part.strip().split(":")
        flags = rest[1].split("+") if len(rest) > 1 else []
        if not source or len(rest) > 2 or "" in rest:
            raise ValueError(f"'{part}' is not SOURCE:DESTINATION, as in /data:/data:ro")
        unknown = next((flag for flag in flags if flag not in ("ro", "rw")), "")
        if unknown or len(flags) > 1:
            raise ValueError(f"'{part}': '{rest[1]}' is not a flag of a mount (ro or rw)")
        found.append(Mount(source, rest[0] if rest else source, "ro" in flags))
    return tuple(found)


def environment(text: str, own: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the variables of `A=1,B,C='x,y'`; a bare name takes its value from `own`."""
    pairs = []
    for part in re.findall(r"(?:[^,']|'[^']*')+", text):
        name, equals, value = part.strip().partition("=")
        pairs.append((name, value.replace("'", "") if equals else own_value(name, own)))
    return tuple(pairs)


def own_value(name: str, own: Mapping[str, str]) -> str:
    """Returns the value of a variable of the submitter. Raises ValueError if it is not set."""
    if name not in own:
        raise ValueError(f"'{name[:40]}' has no value and is not set in your environment")
    return own[name]
