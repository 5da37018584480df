"""A policy that writes to what it is shown fails at once, whatever it writes to."""

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from builders import Row, Stage
from dovetail.core.job import LABELS
from dovetail.core.view import View


def shown() -> View:
    stage = Stage([Row(1, 5.0), Row(2, 7.0), Row(1, 2.0)], "srtf", "1x4")
    return stage.run_jobs((0, ((0, 1),))).view


@pytest.mark.parametrize("name", [f.name for f in fields(View)])
def test_no_attribute_can_be_replaced_or_deleted(name: str) -> None:
    view = shown()
    with pytest.raises(FrozenInstanceError):
        setattr(view, name, getattr(view, name))
    with pytest.raises(FrozenInstanceError):
        delattr(view, name)


def test_no_attribute_can_be_added() -> None:
    with pytest.raises((AttributeError, TypeError)):
        shown().note = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["changes", "physics", "cluster", "placing", "jobs"])
def test_values_of_a_view_are_frozen(name: str) -> None:
    value = getattr(shown(), name)
    names = value._fields if hasattr(value, "_fields") else [f.name for f in fields(value)]
    for field in names:
        with pytest.raises(AttributeError):
            setattr(value, field, getattr(value, field))


def test_mappings_refuse_a_write() -> None:
    view = shown()
    for mapping in (view.running, view.plan.placed, view.switch_s, view.expanding):
        with pytest.raises(TypeError):
            mapping["start"] = 1.0  # type: ignore[index]


def test_every_column_of_the_job_table_is_read_only() -> None:
    jobs = shown().jobs
    columns = {f.name: getattr(jobs, f.name) for f in fields(jobs)}
    arrays = {n: c for n, c in columns.items() if isinstance(c, np.ndarray)}
    labels = {n: c.codes for n, c in columns.items() if hasattr(c, "codes")}
    derived = {"least": jobs.least_gpus, "most": jobs.most_gpus}
    assert len(arrays) > 10 and len(labels) == len(LABELS)
    for name, array in (arrays | labels | derived).items():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
        assert not array.flags.writeable, name


def test_tables_of_the_physics_are_read_only() -> None:
    view = shown()
    stages = view.physics.sharing.interleaving
    for array in (
        view.physics.speed.rates(4),
        stages.stage_s,
        stages.iteration_s,
        view.preemptible,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
