"""Lists of hosts as Slurm writes them: `n[1-3,07]` for n1, n2, n3 and n07."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

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
