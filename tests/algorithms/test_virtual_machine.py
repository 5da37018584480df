"""The virtual machine beside the offline algorithm, a plain replay, and worked example 12."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.algorithms.single_machine import srpt_completions
from dovetail.algorithms.virtual_machine import (
    VirtualMachine,
    admitted,
    advanced,
    at_speed,
)
from dovetail.core.units import NEVER_S

EVERYBODY = range(1_000_000)
JOBS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=25)


def completions(jobs: list[tuple[float, float]], speed: float = 1.0) -> dict[int, float]:
    """Plays (release, size) in order of release, looking at every completion on time."""
    machine = VirtualMachine(speed)
    done: dict[int, float] = {}

    def look(until_s: float) -> None:
        nonlocal machine
        while machine.end_s <= until_s:
            end_s = machine.end_s
            machine, ended = advanced(machine, end_s, EVERYBODY)
            assert ended, "a look at the end of a job finds it ended"
            done.update(dict.fromkeys(ended, end_s))

    for job, (release_s, size) in enumerate(jobs):
        look(release_s)
        machine = admitted(machine, release_s, job, size)
    look(1e18)
    return done


def test_worked_example_12() -> None:
    names = "abcd"
    done = completions([(0, 6), (1, 3), (2, 1), (9, 2)])
    assert [(names[job], end_s) for job, end_s in done.items()] == [
        ("c", 3), ("b", 5), ("a", 10), ("d", 12),
    ]  # fmt: skip


@given(JOBS)
def test_it_ends_jobs_when_the_offline_algorithm_does(jobs: list[tuple[int, int]]) -> None:
    jobs = sorted(jobs, key=lambda job: job[0])
    done = completions([(float(r), float(s)) for r, s in jobs])
    expected = srpt_completions([r for r, _ in jobs], [s for _, s in jobs])
    assert [done[job] for job in range(len(jobs))] == pytest.approx(expected.tolist())


@given(JOBS)
def test_it_ends_jobs_when_a_replay_in_small_steps_does(jobs: list[tuple[int, int]]) -> None:
    """Brute force in whole seconds: at each, the job with least left does one unit."""
    jobs = sorted(jobs, key=lambda job: job[0])
    left = {job: size for job, (_, size) in enumerate(jobs)}
    expected = {job: float(release) for job, (release, size) in enumerate(jobs) if not size}
    now = 0
    while len(expected) < len(jobs):
        here = [(left[j], j) for j, (release, _) in enumerate(jobs) if release <= now and left[j]]
        if here:
            job = min(here)[1]
            left[job] -= 1
            if not left[job]:
                expected[job] = now + 1.0
        now += 1
    assert completions([(float(r), float(s)) for r, s in jobs]) == expected


@given(JOBS, st.lists(st.floats(0, 60), max_size=10))
def test_who_looks_late_or_in_between_sees_the_same_order(
    jobs: list[tuple[int, int]], looks: list[float]
) -> None:
    """Releases bring the order about, not the moments at which somebody looks."""
    jobs = sorted(jobs, key=lambda job: job[0])
    expected = list(completions([(float(r), float(s)) for r, s in jobs]))
    machine, order = VirtualMachine(1.0), []
    events = sorted([(float(r), 0, job) for job, (r, _) in enumerate(jobs)])
    for now_s, _, job in sorted([*events, *((t, 1, -1) for t in looks)]):
        machine, ended = advanced(machine, now_s, EVERYBODY)
        order += ended
        if job >= 0:
            machine = admitted(machine, now_s, job, float(jobs[job][1]))
    order += advanced(machine, 1e18, EVERYBODY)[1]
    assert order == expected


def test_a_job_of_size_zero_completes_on_arrival() -> None:
    machine = admitted(VirtualMachine(1.0), 0.0, 0, 5.0)
    machine = admitted(machine, 2.0, 1, 0.0)
    assert machine.end_s == 2.0
    machine, ended = advanced(machine, 2.0, EVERYBODY)
    assert ended == [1]
    assert machine.end_s == 5.0


def test_an_exact_tie_goes_on_with_the_job_that_runs() -> None:
    machine = admitted(VirtualMachine(1.0), 0.0, 0, 5.0)
    assert admitted(machine, 3.0, 1, 2.0).job == 0
    assert admitted(machine, 3.0, 1, 2.0 - 1e-12).job == 0
    assert admitted(machine, 3.0, 1, 1.9).job == 1


def test_another_speed_holds_from_its_moment_on() -> None:
    machine = admitted(VirtualMachine(4.0), 0.0, 0, 40.0)
    machine = at_speed(machine, 5.0, 2.0)  # 20 units left
    assert machine.end_s == 15.0
    still = at_speed(machine, 10.0, 0.0)  # 10 left, and nothing moves
    assert still.end_s == NEVER_S
    assert at_speed(still, 100.0, 5.0).end_s == 102.0
    assert at_speed(VirtualMachine(1.0), 3.0, 2.0).end_s == NEVER_S


def test_who_is_gone_leaves_the_machine_at_once_and_the_line_when_its_turn_comes() -> None:
    machine = VirtualMachine(1.0)
    for job, size in enumerate((2.0, 3.0, 4.0)):
        machine = admitted(machine, 0.0, job, size)
    machine, ended = advanced(machine, 1.0, {1, 2})  # job 0 is cancelled at 1 s
    assert (ended, machine.job, machine.end_s) == ([], 1, 4.0)
    machine, ended = advanced(machine, 4.0, {1})  # job 2 was cancelled in between
    assert (ended, machine.job, machine.end_s) == ([1], -1, NEVER_S)
