"""Lists of hosts as Slurm writes them: `n[01-03,07],gpu5` is n01, n02, n03, n07 and gpu5.

A name may have several brackets (`r[1-2]n[1-4]` is their product) and text behind them. A number
with leading zeros keeps its width. Format: `scontrol show hostnames`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, product

from dovetail.core.errors import InputError

NODES_MAX = 65_536
"""The most nodes that one list may name: a longer one is damaged (Slurm's own limit)."""
NO_NODES = ("", "none assigned", "none", "(null)", "unknown")
"""What Slurm writes for a job that never had a node."""

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")


def host_list(names: Iterable[str]) -> str:
    """Returns names in the given order, those that differ in their last number together."""
    split = [(m[1], m[2]) if (m := _NUMBERED.fullmatch(name)) else (name, "") for name in names]
    parts = []
    for prefix, members in groupby(split, key=lambda each: each[0]):
        numbers = [number for _, number in members]
        spans = _spans([number for number in numbers if number])
        if "" in numbers:
            # A name without a number may come several times in a row.
            parts += [prefix + number for number in numbers]
        elif len(numbers) == 1:
            parts.append(prefix + numbers[0])
        else:
            parts.append(f"{prefix}[{','.join(spans)}]")
    return ",".join(parts)


def _spans(numbers: Sequence[str]) -> list[str]:
    """Returns runs of numbers that follow each other, written with as many digits."""
    runs: list[list[str]] = []
    for number in numbers:
        last = runs[-1][-1] if runs else ""
        follows = bool(last) and int(number) == int(last) + 1 and _same_form(last, number)
        if follows:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _same_form(one: str, next_one: str) -> bool:
    """Returns whether counting from one number to the next keeps the zeros as written."""
    return str(int(one) + 1).zfill(len(one)) == next_one


def counted(values: Iterable[int]) -> str:
    """Returns numbers as in SLURM_TASKS_PER_NODE: `2(x3),1` for 2, 2, 2 and 1."""
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    return ",".join(f"{value}(x{times})" if times > 1 else str(value) for value, times in runs)


def host_names(text: str) -> tuple[str, ...]:
    """Returns the names of a list, in its order. Raises InputError for a damaged list."""
    if text.strip().lower() in NO_NODES:
        return ()
    names: list[str] = []
    for piece in _pieces(text):
        parts = [_alternatives(text, *match.groups()) for match in _PART.finditer(piece)]
        if not parts or "".join(m.group() for m in _PART.finditer(piece)) != piece:
            raise _damaged(text)
        count = 1
        for part in parts:
            count *= len(part)
        if len(names) + count > NODES_MAX:
            raise InputError(f"node list '{text[:60]}'", f"it names over {NODES_MAX:,} nodes")
        names += ["".join(chosen) for chosen in product(*parts)]
    return tuple(names)


@lru_cache(maxsize=65_536)
def readable_host_names(text: str) -> tuple[str, ...]:
    """Returns the names of a list, none for a damaged one: a log may have any text there."""
    try:
        return host_names(text)
    except InputError:
        return ()


def _pieces(text: str) -> list[str]:
    """Returns the text parted at the commas outside of brackets."""
    pieces, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise _damaged(text)
        if letter == "," and not depth:
            pieces.append(text[begin:i].strip())
            begin = i + 1
    if depth:
        raise _damaged(text)
    return [*pieces, text[begin:].strip()]


def _alternatives(text: str, ranges: str | None, plain: str | None) -> list[str]:
    if ranges is None:
        return [plain or ""]
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _damaged(text)
        low, high = match[1], match[2] or match[1]
        if not 0 <= int(high) - int(low) < NODES_MAX:
            raise _damaged(text)
        found += [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
    return found


def _damaged(text: str) -> InputError:
    return InputError(f"node list '{text[:60]}'", "it cannot be read", "as in n[01-03,07],gpu5")
