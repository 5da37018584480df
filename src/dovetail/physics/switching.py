"""What a switch costs: the seconds a job holds its GPUs without progress after it is placed.

A model of its own, the same for every policy of a comparison (ALGORITHMS section 0).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.core.messages import ADJUST, MOVE, RESIZE, RESUME, START

RESTART_S = 30.0
"""A full framework restart takes tens of seconds (AFS section 2.1)."""


@dataclass(frozen=True, slots=True)
class Switching:
    """Seconds without progress after a first start, a resumption, a move, a resize, and after
    a change of manner on the same GPUs (accumulation, fractions, samples), which is free."""

    start_s: float = 0.0
    resume_s: float = RESTART_S
    move_s: float = RESTART_S
    resize_s: float = RESTART_S
    adjust_s: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not 0 <= value < float("inf"):
                raise InputError("--switching", f"{f.name} must be 0 or more, not {value}")

    def delay_s(self, how: str) -> float:
        """Returns the cost of placing a job for this reason."""
        return {
            START: self.start_s,
            RESUME: self.resume_s,
            MOVE: self.move_s,
            RESIZE: self.resize_s,
            ADJUST: self.adjust_s,
        }[how]

    @staticmethod
    def parse(text: str) -> Switching:
        """Returns the model for `none`, `restart:30`, `per-start:5`, `per-resize:2` or a file.

        Words may be joined by commas. A TOML file has the fields of this class. Raises
        InputError.
        """
        if text.endswith(".toml"):
            return _from_file(Path(text))
        costs = {"start_s": 0.0, "resume_s": 0.0, "move_s": 0.0, "resize_s": 0.0}
        touched = {
            "none": (),
            "restart": ("resume_s", "move_s", "resize_s"),
            "per-start": ("start_s", "resume_s", "move_s"),
            "per-resize": ("resize_s",),
        }
        for word in text.split(","):
            name, _, number = word.partition(":")
            if name not in touched:
                raise InputError("--switching", f"unknown model '{name}'", nearest(name, touched))
            for cost in touched[name]:
                costs[cost] = _seconds(word, number)
        return Switching(**costs)

    def __str__(self) -> str:
        costs = [f"{f.name.removesuffix('_s')} {getattr(self, f.name):g} s" for f in fields(self)]
        return ", ".join(costs)


def _seconds(word: str, number: str) -> float:
    try:
        return float(number) if number else RESTART_S
    except ValueError:
        raise InputError("--switching", f"'{word}' wants a number of seconds") from None


def _from_file(path: Path) -> Switching:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(str(path), f"cannot be read as TOML: {error}") from None
    known = [f.name for f in fields(Switching)]
    for name, value in table.items():
        if name not in known:
            raise InputError(str(path), f"unknown field '{name}'", nearest(name, known))
        if not isinstance(value, int | float):
            raise InputError(str(path), f"field '{name}' wants a number of seconds")
    return Switching(**table)
