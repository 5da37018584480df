"""The table of all fields of a job spec, and a draft that collects values with their origin.

YAML files, `#DOVETAIL` lines and the command line have the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

from dovetail.core.errors import InputError, nearest
from dovetail.jobspec import values as read

T = TypeVar("T")


def text(value: str) -> str:
    """Returns the text unchanged. Raises ValueError if it is empty."""
    if not value:
        raise ValueError("it is empty")
    return value


FIELDS: Mapping[str, Callable[[str], object]] = {
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
    "topology": text,
    "trains": read.flag,
    "elastic": read.elastic,
    "shareable": read.flag,
    "preemptible": read.flag,
    "queue": text,
    "account": text,
    "qos": text,
    "reservation": text,
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
    "container_image": text,
    "container_mounts": read.mounts,
    "after": read.after,
    "array": read.array,
    "hold": read.flag,
    "kill_on_invalid_dep": read.flag,
    "retries": read.whole,
    "requeue": read.flag,
    "grace": read.seconds,
    "paced": read.flag,
}
"""The parser of each field. The caller parses `environment`, which needs that of the submitter."""

PARAMETER = {
    "memory": "memory_bytes",
    "elastic": "restart_s",
    "time_limit": "time_limit_s",
    "deadline": "deadline_s",
    "duration": "duration_s",
    "begin": "begin_s",
    "grace": "grace_s",
}
"""The `JobSpec` parameter of each field whose parameter has a unit in its name."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value with the file and line it came from; `trusted` if it is from the command line.

    `called` is the name that the user wrote, such as `--time`; empty for the field's own name.
    """

    value: object
    where: str
    trusted: bool = False
    called: str = ""

    @property
    def text(self) -> str:
        """Returns the value of a field that is a text."""
        return str(self.value)


@dataclass(slots=True)
class JobDraft:
    """The fields set so far; a later value replaces an earlier one."""

    where: str
    entries: dict[str, FieldValue] = field(default_factory=dict)

    def parse(
        self, name: str, value: str, where: str, *, trusted: bool = False, called: str = ""
    ) -> None:
        """Sets a field from text. Raises InputError."""
        check_known(name, where)
        with parsing(where, called or name):
            self.put(name, FIELDS[name](value), where, trusted=trusted, called=called)

    def put(
        self, name: str, value: object, where: str, *, trusted: bool = False, called: str = ""
    ) -> None:
        """Sets a field to a value. A new range of GPUs also replaces min_gpus and max_gpus."""
        if name == "gpus":
            self.entries.pop("min_gpus", None)
            self.entries.pop("max_gpus", None)
        self.entries[name] = FieldValue(value, where, trusted, called)

    def copy(self, where: str) -> JobDraft:
        """Returns a new draft with the same fields."""
        return JobDraft(where, dict(self.entries))

    def value(self, name: str, default: T) -> T:
        """Returns the value of a field, which has the type of `default`; `default` if not set."""
        return cast(T, self.entries[name].value) if name in self.entries else default

    def called(self, name: str) -> str:
        """Returns the name that the user wrote for a field, for an error message."""
        return (self.entries[name].called if name in self.entries else "") or name

    def place(self, name: str) -> str:
        """Returns the file and line of a field, for an error message."""
        return self.entries[name].where if name in self.entries else self.where


@contextmanager
def parsing(where: str, name: str) -> Iterator[None]:
    """Turns a ValueError in the block into an InputError that names the field or option."""
    try:
        yield
    except ValueError as error:
        raise InputError(where, f"{name}: {error}") from None


def check_known(name: str, where: str) -> None:
    """Raises InputError for an unknown field."""
    if name not in FIELDS:
        raise InputError(where, f"unknown field '{name[:60]}'", nearest(name[:60], FIELDS))
