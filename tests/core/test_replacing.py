"""The copies of values with many fields are those of the standard library."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields

import pytest

from dovetail.core.replacing import replace
from dovetail.live.jobs.record import JobRecord
from dovetail.wire.agent import StartWorker

ORDER = StartWorker(1, -1, -1, -1, ("true",), "/jobs/1", "out", "/")


@pytest.mark.parametrize("value", [JobRecord(7, reason="Priority"), ORDER])
def test_a_copy_is_that_of_the_standard_library(value: JobRecord | StartWorker) -> None:
    before = repr(value)
    for field in fields(value):
        change = {field.name: f"another {field.name}"}
        copy = replace(value, **change)  # type: ignore[arg-type]
        assert copy == dataclasses.replace(value, **change) != value  # type: ignore[arg-type]
        assert type(copy) is type(value) and hash(copy)
    assert repr(value) == before and replace(value) == value


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match="jobs"):
        replace(ORDER, jobs=2)  # type: ignore[call-arg]


def test_a_class_that_checks_its_fields_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        one: int
        other: int

        def __post_init__(self) -> None:
            assert self.one < self.other

    with pytest.raises(TypeError, match="Checked"):
        replace(Checked(1, 2), one=3)
