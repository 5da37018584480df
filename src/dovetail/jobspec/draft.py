"""A job spec in the making: fields by name, each with the place it was written at.

The fields are the same in a YAML file, on `#DOVETAIL` lines and on the command line; this table
is all there is to know of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.core.errors import InputError, nearest
from dovetail.jobspec import values as read


def text(said: str) -> str:
    """Returns the text as it is."""
    if not said:
        raise ValueError("it is empty")
    return said


FIELDS: Mapping[str, Callable[[str], Any]] = {
    "name": text,
    "command": read.words,
    "script": text,
    "workdir": text,
    "output": text,
    "gpus": read.gpus,
    "min_gpus": read.whole,
    "max_gpus": read.whole,
    "ntasks": read.one_or_more,
    "slurm_variables": read.flag,
    "gpu_type": text,
    "trains": read.flag,
    "shareable": read.flag,
    "preemptible": read.flag,
    "queue": text,
    "model": text,
    "recurrence": text,
    "priority": read.number,
    "batch_size": read.whole,
    "cpus": read.number,
    "memory": read.memory_bytes,
    "time_limit": read.some_seconds,
    "deadline": read.some_seconds,
    "duration": read.seconds,
    "begin": read.span,
    "environment": text,
    "after": read.after,
    "array": read.array,
    "hold": read.flag,
    "kill_on_invalid_dep": read.flag,
    "retries": read.whole,
    "requeue": read.flag,
    "grace": read.seconds,
    "paced": read.flag,
}
"""Every field, and what makes its value from text. `environment` is read by who knows one."""

PARAMETER = {
    "memory": "memory_bytes",
    "time_limit": "time_limit_s",
    "deadline": "deadline_s",
    "duration": "duration_s",
    "begin": "begin_s",
    "grace": "grace_s",
}
"""The fields whose `JobSpec` parameter has its unit in its name."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value and where it was written. `trusted` if the submitter said it on the command line.

    `called` is what its author wrote for the field, as `--time`; empty for the field's own name.
    """

    value: Any
    where: str
    trusted: bool = False
    called: str = ""


@dataclass(slots=True)
class JobDraft:
    """The fields given so far; what comes later takes the place of what came before."""

    where: str
    given: dict[str, FieldValue] = field(default_factory=dict)

    def say(
        self, name: str, said: str, where: str, *, trusted: bool = False, called: str = ""
    ) -> None:
        """Sets a field from text. Raises InputError."""
        known(name, where)
        try:
            self.put(name, FIELDS[name](said), where, trusted=trusted, called=called)
        except ValueError as error:
            raise InputError(where, f"{called or name}: {error}") from None

    def put(
        self, name: str, value: object, where: str, *, trusted: bool = False, called: str = ""
    ) -> None:
        """Sets a field to a value. A new range of GPUs replaces the bounds of an older one."""
        if name == "gpus":
            self.given.pop("min_gpus", None)
            self.given.pop("max_gpus", None)
        self.given[name] = FieldValue(value, where, trusted, called)

    def copy(self, where: str) -> JobDraft:
        """Returns another draft that begins with the same fields."""
        return JobDraft(where, dict(self.given))

    def value(self, name: str, usual: Any = None) -> Any:
        """Returns the value of a field, or `usual`."""
        return self.given[name].value if name in self.given else usual

    def called(self, name: str) -> str:
        """Returns what the author of a field wrote for it, for an error about it."""
        return (self.given[name].called if name in self.given else "") or name

    def place(self, name: str) -> str:
        """Returns where a field was written, for an error about it."""
        return self.given[name].where if name in self.given else self.where


def known(name: str, where: str) -> None:
    """Raises InputError unless there is such a field."""
    if name not in FIELDS:
        raise InputError(where, f"unknown field '{name[:60]}'", nearest(name[:60], FIELDS))
