"""Jobs that wait for whole arrays: right, and without asking for each task at every end."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from live_stage import Stage

from dovetail.core.errors import InputError
from dovetail.core.messages import Started
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.wire.spec import AFTER, Dependency, JobSpec
from dovetail.wire.submission import Submission
from store_reads import all_jobs

TASKS = 40
JOBS, MEDDLED = 14, 12


def submit(s: Stage, t: float, tasks: int, **rest: Any) -> None:
    """Lets an array of short paced jobs be submitted."""
    spec = JobSpec("job", (), "/", duration_s=1.0, paced=True, **rest)

    def do() -> None:
        assert s.intake is not None
        s.intake.submit([Submission(spec, tuple(range(tasks)))], key=f"array at {t}")

    s.at(t, do)


def counted(s: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the jobs that the store is asked for from now on."""
    asked: list[int] = []
    find = s.store.find

    def count(job: int) -> StoredJob | None:
        asked.append(job)
        return find(job)

    monkeypatch.setattr(s.store, "find", count)
    return asked


@pytest.mark.parametrize("waiting", [1, 10])
def test_who_waits_for_an_array_does_not_ask_for_each_task_at_every_end(
    monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    s = Stage(nodes=1, gpus=1)
    submit(s, 1.0, TASKS)
    submit(s, 1.5, waiting, after=(Dependency("afterany", 1),))
    asked = counted(s, monkeypatch)
    s.play(300.0)
    assert set(s.states().values()) == {State.COMPLETED}
    # The stage asks for the length of each job as it comes. Each end asked for all before it.
    assert len(asked) <= 2 * (TASKS + waiting)
    began = [f.t for f in s.facts if isinstance(f, Started) and f.job > TASKS]
    assert min(began) >= max(s.record(job).end_s for job in range(1, TASKS + 1))


def test_another_controller_asks_once_for_each_task_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Stage(nodes=1, gpus=1)
    submit(s, 1.0, TASKS)
    submit(s, 1.5, 10, after=(Dependency("afterok", 1),))
    s.play(1.0 + TASKS / 2)
    over = sum(state is State.COMPLETED for state in s.states().values())
    assert over > TASKS // 4
    asked = counted(s, monkeypatch)
    s.play(300.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert len(asked) <= 3 * (TASKS + 10)


def test_a_job_waits_again_for_one_that_is_run_once_more_before_the_others_are_over() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=15.0)
    s.submit(1.0, duration_s=20.0)
    s.submit(1.5, after=(Dependency("afterok", 1), Dependency("afterok", 2)))
    s.ask(18.0, "requeue", 1)
    s.play(80.0)
    assert set(s.states().values()) == {State.COMPLETED}
    (began,) = [f.t for f in s.of(3) if isinstance(f, Started)]
    assert began == pytest.approx(33.0, abs=0.5), "the first ran from 18 to 33"


def test_what_can_never_be_met_is_said_at_once_though_others_are_waited_for() -> None:
    s = Stage(nodes=1, gpus=3)
    for duration_s in (5.0, 10.0, 15.0):
        s.submit(1.0, duration_s=duration_s)
    needs = tuple(Dependency(kind, job) for job, kind in ((3, "afterok"), (1, "afternotok")))
    s.submit(1.5, after=needs)
    s.submit(1.6, after=needs, kill_on_invalid_dep=True)
    s.submit(1.7, after=(Dependency("afterok", 1), Dependency("afterany", 2)))
    s.play(4.0)
    assert s.record(4).detail == "it waits for afterok:3"
    s.play(8.0)
    assert s.record(4).reason == "DependencyNeverSatisfied"
    assert s.record(4).detail == "afternotok:1 cannot happen any more"
    assert s.record(5).state is State.CANCELLED
    assert s.record(6).detail == "it waits for afterany:2"
    s.play(60.0)
    assert (s.record(4).state, s.record(4).reason) == (State.PENDING, "DependencyNeverSatisfied")
    assert s.record(6).state is State.COMPLETED


def test_one_that_is_held_hears_on_its_release_what_can_never_be_met() -> None:
    s = Stage(nodes=1, gpus=3)
    for duration_s in (15.0, 5.0):
        s.submit(1.0, duration_s=duration_s)
    s.submit(1.5, after=(Dependency("afterok", 1), Dependency("afternotok", 2)))
    s.ask(3.0, "hold", 3)
    s.ask(8.0, "release", 3)
    s.play(9.0)
    assert s.record(3).reason == "DependencyNeverSatisfied"


def test_a_job_that_could_never_start_hopes_again_when_the_other_begins_anew() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=50.0)
    s.submit(1.0, duration_s=40.0)
    s.submit(1.5, duration_s=3.0, after=(Dependency("afterok", 1), Dependency("afterok", 2)))
    s.ask(5.0, "cancel", 2)
    s.ask(10.0, "requeue", 2)
    s.play(8.0)
    assert s.record(3).reason == "DependencyNeverSatisfied"
    s.play(20.0)
    assert s.record(3).detail == "it waits for afterok:1"
    s.play(100.0)
    assert set(s.states().values()) == {State.COMPLETED}


def drawn(s: Stage, rng: Random) -> set[int]:
    """Lets jobs be submitted that wait for others, and users meddle; returns whom they requeue."""
    for number in range(1, JOBS + 1):
        before = rng.sample(range(1, number), min(number - 1, rng.choice((0, 1, 2, 3))))
        after = tuple(Dependency(rng.choice(AFTER), job) for job in before)
        kill = rng.random() < 0.2
        duration_s = rng.uniform(2.0, 15.0)
        s.submit(number / 2, duration_s=duration_s, after=after, kill_on_invalid_dep=kill)
    requeued = set[int]()
    for n in range(MEDDLED):
        verb, job = (
            rng.choice(("cancel", "cancel", "requeue", "hold", "release")),
            rng.randint(1, JOBS),
        )
        if verb == "requeue":
            requeued.add(job)

        def do(verb: str = verb, job: int = job, key: str = f"meddled {n}") -> None:
            assert s.intake is not None
            with suppress(InputError):
                s.intake.request(verb, jobs=(job,), key=key)

        s.at(rng.uniform(JOBS / 2, 60.0), do)
    return requeued


def is_met(need: Dependency, record: JobRecord) -> bool | None:
    """Returns whether a dependency is met by a record, None if it never will be."""
    over = record.state in TERMINAL
    if need.kind == "after":
        return over or record.first_start_s < float("inf") or record.state is not State.PENDING
    if not over or need.kind == "afterany":
        return over
    return True if (record.state is State.COMPLETED) == (need.kind == "afterok") else None


@pytest.mark.parametrize("seed", range(40))
def test_what_a_job_is_said_to_wait_for_is_what_its_dependencies_say(seed: int) -> None:
    rng, s = Random(seed), Stage()
    requeued = drawn(s, rng)
    for until in sorted(rng.uniform(8.0, 70.0) for _ in range(3)):
        s.play(until)
        jobs = {kept.number: kept for kept in all_jobs(s.store.queries)}
        for number, kept in jobs.items():
            record = kept.record
            if record.state is not State.PENDING or record.held:
                continue
            met = [is_met(need, jobs[need.job].record) for need in kept.spec.after]
            if not record.reason and requeued.intersection(n.job for n in kept.spec.after):
                continue  # It was let in before; who is in the queue stays there.
            expected = "DependencyNeverSatisfied" if None in met else "Dependency"
            assert record.reason == ("" if all(met) else expected), (number, until)
