"""What keeps a job out of the queue beside a hold: a time, its array's limit, other jobs."""

from typing import Any

import pytest
from live_stage import Stage

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.submission import Submission
from store_audit import audit
from store_reads import all_jobs


def submit(s: Stage, t: float, *array: int, duration_s: float = 10.0, **rest: Any) -> None:
    """Lets an array of paced jobs, or one, be submitted."""
    spec = JobSpec("job", (), "/", duration_s=duration_s, paced=True, **rest)

    def do() -> None:
        assert s.intake is not None
        s.intake.submit([Submission(spec, array)], key=f"array at {t} {rest}")

    s.at(t, do)


def most_at_once(s: Stage, jobs: range) -> int:
    """Returns how many of some jobs were on GPUs at once, by the log."""
    on: dict[int, None] = {}
    most = 0
    for fact in s.facts:
        kind, job = type(fact).__name__, getattr(fact, "job", -1)
        if job in jobs and kind == "Started":
            on[job] = None
        elif job in jobs and kind in ("Stopped", "Ended"):
            on.pop(job, None)
        most = max(most, len(on))
    return most


def sound(s: Stage) -> None:
    """Fails if the store breaks a promise."""
    assert audit(s.store.queries, cluster=Cluster.uniform(2, 2)) == []


def test_an_array_has_no_more_tasks_on_gpus_than_its_owner_allows() -> None:
    s = Stage()
    submit(s, 1.0, 0, 1, 2, 3, 4, at_once=2)
    s.play(3.0)
    reasons = [s.record(job).reason for job in range(1, 6)]
    assert reasons == ["", "", *["JobArrayTaskLimit"] * 3]
    assert "at most 2 tasks of its array" in s.record(5).detail
    sound(s)
    s.play(100.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert most_at_once(s, range(1, 6)) == 2
    assert s.record(5).end_s == pytest.approx(31.0, abs=1.0), "three rounds, two at a time"
    sound(s)


def test_another_controller_keeps_to_the_limit_of_an_array() -> None:
    s = Stage()
    submit(s, 1.0, 0, 1, 2, 3, at_once=1)
    for until in (2.0, 6.0, 13.0, 25.0, 80.0):
        s.play(until)
        sound(s)
    assert set(s.states().values()) == {State.COMPLETED}
    assert most_at_once(s, range(1, 5)) == 1


def test_tasks_that_wait_in_the_queue_keep_their_places_under_another_controller() -> None:
    s = Stage()
    submit(s, 1.0, duration_s=20.0, gpus=4, min_gpus=4, max_gpus=4)  # all there are: the tasks wait
    submit(s, 2.0, 0, 1, 2, 3, 4, 5, at_once=2)
    for until in (3.0, 4.0, 5.0, 6.0):  # each is a controller of its own
        s.play(until)
        waits = [s.record(job).reason for job in range(2, 8)]
        assert waits == ["", "", *["JobArrayTaskLimit"] * 4]
    s.play(200.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert most_at_once(s, range(2, 8)) == 2
    sound(s)


def test_a_task_that_is_held_gives_its_place_in_the_array_to_the_next() -> None:
    s = Stage(nodes=1, gpus=1)
    submit(s, 1.0, 0, 1, 2, at_once=2)
    s.ask(2.0, "hold", 2)
    s.ask(3.0, "release", 2)
    s.play(4.0)
    assert [s.record(job).reason for job in (1, 2, 3)] == ["", "JobArrayTaskLimit", ""]
    s.ask(5.0, "cancel", 3)
    s.play(6.0)
    assert s.record(2).reason == ""
    s.play(60.0)
    sound(s)


def test_a_task_begun_anew_waits_for_a_place_in_its_array() -> None:
    s = Stage()
    submit(s, 1.0, 0, 1, at_once=1)
    s.ask(13.0, "requeue", 1)
    s.play(15.0)
    assert (s.record(1).reason, s.record(2).state) == ("JobArrayTaskLimit", State.RUNNING)
    s.play(60.0)
    assert set(s.states().values()) == {State.COMPLETED}
    sound(s)


def test_a_job_that_begins_later_is_in_no_queue_before() -> None:
    s = Stage()
    submit(s, 1.0, begin_s=20.0)
    s.ask(3.0, "hold", 1)
    s.ask(4.0, "release", 1)
    s.play(10.0)
    assert (s.record(1).reason, s.record(1).not_before_s) == ("BeginTime", pytest.approx(21.0))
    s.play(60.0)
    assert s.record(1).first_start_s == pytest.approx(21.0, abs=0.1)
    sound(s)


def test_a_job_whose_dependency_cannot_be_met_is_cancelled_if_its_owner_wants() -> None:
    s = Stage()
    s.submit(1.0, duration_s=5.0)
    s.submit(1.5, after=(Dependency("afternotok", 1),), kill_on_invalid_dep=True)
    s.submit(1.6, after=(Dependency("afterok", 2),), kill_on_invalid_dep=True)
    s.submit(1.7, after=(Dependency("afterany", 2),))
    s.play(40.0)
    states = s.states()
    assert states.pop(4) is State.COMPLETED
    assert states == {1: State.COMPLETED, 2: State.CANCELLED, 3: State.CANCELLED}
    assert s.record(2).reason == "DependencyNeverSatisfied"
    sound(s)


def test_a_singleton_waits_for_all_of_its_name_before_it() -> None:
    s = Stage()
    alone = (Dependency("singleton"),)
    s.submit(1.0)
    submit(s, 1.1, 0, 1, after=alone)
    submit(s, 1.2, after=alone)
    s.play(60.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert most_at_once(s, range(1, 5)) == 1


def test_a_task_may_wait_for_its_like_in_another_array() -> None:
    s = Stage()
    submit(s, 1.0, 3, 4, 7)
    submit(s, 1.1, 3, 7, after=(Dependency("aftercorr", 1),))
    submit(s, 1.2, after=(Dependency("afterany", 1, task=4), Dependency("afterok", 4, task=7)))
    s.play(2.0)
    needs = {k.number: k.spec.after for k in all_jobs(s.store.queries) if k.spec.after}
    assert needs == {
        4: (Dependency("afterok", 1),),
        5: (Dependency("afterok", 3),),
        6: (Dependency("afterany", 2), Dependency("afterok", 5)),
    }
    s.play(80.0)
    assert set(s.states().values()) == {State.COMPLETED}


@pytest.mark.parametrize(
    ("need", "array", "what"),
    [
        (Dependency("aftercorr", 1), (5,), "task 1_5, which does not exist"),
        (Dependency("aftercorr", 1), (), "aftercorr is for the tasks of an array"),
        (Dependency("afterok", 1, task=5), (), "task 1_5, which does not exist"),
        (Dependency("afterok", 9, task=0), (), "task 9_0, which does not exist"),
    ],
)
def test_a_task_that_is_not_there_cannot_be_waited_for(
    need: Dependency, array: tuple[int, ...], what: str
) -> None:
    s = Stage()
    submit(s, 1.0, 3, 4)
    submit(s, 1.5, *array, after=(need,))
    with pytest.raises(InputError, match=what):
        s.play(3.0)


def test_every_task_is_told_of_its_array() -> None:
    s = Stage()
    submit(s, 1.0, 2, 6, 4, environment=(("SLURM_ARRAY_TASK_MAX", "mine"),))
    s.play(2.0)
    told = dict(next(iter(all_jobs(s.store.queries))).spec.environment)
    assert told == {
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "mine",
        "SLURM_ARRAY_TASK_STEP": "2",
    }
