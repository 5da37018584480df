"""What a job is told of itself, where its output goes, and what of it may be shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.live.jobs.job_environment import environment_of, environment_of_array, with_restarts
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.output_path import output_of
from dovetail.wire.spec import JobSpec

SPEC = JobSpec("train", ("x",), "/ann", environment=(("TOKEN", "secret"), ("A", "")))
TASK = replace(SPEC, array=3, array_of=12)


@pytest.mark.parametrize(
    ("spec", "output", "expected"),
    [
        (SPEC, "", "/home/jobs/15/output.log"),
        (SPEC, "/ann/%j.log", "/ann/15.log"),
        (SPEC, "/ann/%A_%a.log", "/ann/15_0.log"),
        (TASK, "/ann/%A_%a-%j.log", "/ann/12_3-15.log"),
        (TASK, "/ann/%%j-%%%j.log", "/ann/%j-%15.log"),
        (SPEC, "/ann/50%j/x.log", "/ann/50%j/x.log"),
        (TASK, "/ann/%4j-%J-%2a-%1A-%0j.log", "/ann/0015-15-03-12-15.log"),
        (replace(SPEC, user="ann/x"), "/ann/%u-%%u-%j", "/ann/ann_x-%u-15"),
    ],
)
def test_numbers_are_filled_into_the_file_name_alone(
    spec: JobSpec, output: str, expected: str
) -> None:
    assert str(output_of(replace(spec, output=output), 15, Path("/home/jobs/15"))) == expected


def test_a_job_is_told_who_it_is_and_keeps_its_own_words() -> None:
    assert dict(environment_of(SPEC, 15)) == {
        "SLURM_JOB_ID": "15",
        "SLURM_JOBID": "15",
        "SLURM_SUBMIT_DIR": "/ann",
        "TOKEN": "secret",
        "A": "",
    }
    who = replace(TASK, user="ann", queue="q", cpus=9.0, gpus=2, min_gpus=2, max_gpus=2, ntasks=2)
    own = replace(who, environment=(("SLURM_JOB_ID", "mine"),))
    assert dict(environment_of(own, 15)) == {
        "SLURM_JOB_ID": "mine",
        "SLURM_JOBID": "15",
        "SLURM_JOB_USER": "ann",
        "SLURM_JOB_PARTITION": "q",
        "SLURM_SUBMIT_DIR": "/ann",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "3",
    }


def test_only_a_job_that_wants_slurms_variables_is_told_its_name() -> None:
    asks = replace(SPEC, slurm_variables=True)
    assert dict(environment_of(asks, 15))["SLURM_JOB_NAME"] == "train"


def test_a_restart_is_told_from_the_first_on_and_a_jobs_own_word_goes_before() -> None:
    told = environment_of(SPEC, 15)
    assert with_restarts(told, SPEC, 0) == told
    again = with_restarts(with_restarts(told, SPEC, 1), SPEC, 2)
    assert dict(again) == dict(told) | {"SLURM_RESTART_COUNT": "2"} and len(again) == len(told) + 1
    own = replace(SPEC, environment=(("SLURM_RESTART_COUNT", "7"),))
    assert dict(with_restarts(environment_of(own, 15), own, 2))["SLURM_RESTART_COUNT"] == "7"


@pytest.mark.parametrize(
    ("indices", "told"),
    [
        ((0, 4, 8, 12), ("4", "0", "12", "4")),
        ((7,), ("1", "7", "7", "1")),
        ((1, 2, 9), ("3", "1", "9", "1")),
        ((9, 1, 5), ("3", "1", "9", "4")),
    ],
)
def test_a_task_is_told_how_many_there_are(indices: tuple[int, ...], told: tuple[str, ...]) -> None:
    assert tuple(environment_of_array(indices).values()) == told


def test_a_deadline_counts_from_submission_and_no_deadline_is_none() -> None:
    job = job_request(replace(SPEC, deadline_s=60.0, gpus=2, max_gpus=4, trains=True), 15, 100.0)
    assert (job.job_id, job.deadline_s, job.elastic) == ("15", 160.0, True)
    assert (job.min_gpus, job.gpus, job.max_gpus) == (1, 2, 4)
    assert job_request(SPEC, 15, 100.0).deadline_s == float("inf")
