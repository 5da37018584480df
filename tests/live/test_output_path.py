"""What a job is told of itself, where its output goes, and what of it may be shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.live.controller.job_environment import environment_of
from dovetail.live.controller.output_path import output_of
from dovetail.live.controller.spec_job import job_of
from dovetail.live.door.public import public
from dovetail.wire.spec import JobSpec

SPEC = JobSpec("train", ("x",), "/work", environment=(("TOKEN", "secret"), ("A", "")))
TASK = replace(SPEC, array=3, array_of=12)


@pytest.mark.parametrize(
    ("spec", "output", "expected"),
    [
        (SPEC, "", "/home/jobs/15/output.log"),
        (SPEC, "/work/%j.log", "/work/15.log"),
        (SPEC, "/work/%A_%a.log", "/work/15_0.log"),
        (TASK, "/work/%A_%a-%j.log", "/work/12_3-15.log"),
        (TASK, "/work/%%j-%%%j.log", "/work/%j-%15.log"),
        (SPEC, "/work/50%j/x.log", "/work/50%j/x.log"),
    ],
)
def test_numbers_are_filled_into_the_file_name_alone(
    spec: JobSpec, output: str, expected: str
) -> None:
    assert str(output_of(replace(spec, output=output), 15, Path("/home/jobs/15"))) == expected


def test_a_job_is_told_who_it_is_and_keeps_its_own_words() -> None:
    assert dict(environment_of(SPEC, 15)) == {
        "SLURM_JOB_ID": "15",
        "SLURM_JOB_NAME": "train",
        "TOKEN": "secret",
        "A": "",
    }
    own = replace(TASK, environment=(("SLURM_JOB_ID", "mine"),))
    assert dict(environment_of(own, 15)) == {
        "SLURM_JOB_ID": "mine",
        "SLURM_JOB_NAME": "train",
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "3",
    }


def test_what_is_shown_holds_no_value_of_the_environment() -> None:
    shown = public(SPEC)
    assert "secret" not in repr(shown)
    assert [name for name, _ in shown.environment] == ["TOKEN", "A"]
    assert replace(shown, environment=SPEC.environment) == SPEC


def test_a_deadline_counts_from_submission_and_no_deadline_is_none() -> None:
    job = job_of(replace(SPEC, deadline_s=60.0, gpus=2, max_gpus=4, trains=True), 15, 100.0)
    assert (job.job_id, job.deadline_s, job.elastic) == ("15", 160.0, True)
    assert (job.min_gpus, job.gpus, job.max_gpus) == (1, 2, 4)
    assert job_of(SPEC, 15, 100.0).deadline_s == float("inf")
