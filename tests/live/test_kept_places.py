"""A job keeps its place on a node that is cut off: it runs on there, or ends there, once."""

from __future__ import annotations

from itertools import product

import pytest
from harness.stage import play
from harness.story import Fault, Story, Submission, Verb

from dovetail.live.controller.admission import Admission
from dovetail.live.controller.leases import Leases
from dovetail.live.controller.live_jobs import LiveJob

NODES = 3


def tale(
    *faults: Fault,
    runs_s: float,
    verbs: tuple[Verb, ...] = (),
    lease_s: float = 60.0,
    gpus: int = 1,
    kind: str = "plain",
) -> list[str]:
    """Plays a story with one job; returns what happened, checked by all the rules."""
    job = Submission(0.0, kind, gpus, gpus, gpus, runs_s)
    story = Story(1, "fifo", (job,), verbs, faults, nodes=NODES, lease_s=lease_s)
    outcome = play(story)
    assert not outcome.wrong, outcome.wrong
    return list(outcome.tale)


def starts(tale: list[str]) -> int:
    return sum(" starts on " in line for line in tale)


def when(tale: list[str], what: str) -> float:
    return next(float(line.split()[0]) for line in tale if what in line)


EACH = pytest.mark.parametrize(("kind", "node"), list(product(("plain", "elastic"), range(NODES))))


@EACH
def test_it_runs_on_through_a_cut_of_any_length_within_the_lease(kind: str, node: int) -> None:
    told = tale(Fault(20.0, "node cut off", 45.0, node=node), runs_s=90.0, kind=kind)
    assert starts(told) == 1 and when(told, "job 1 is COMPLETED") < 95.0


@EACH
def test_an_end_that_nobody_heard_counts_when_the_node_is_back(kind: str, node: int) -> None:
    told = tale(Fault(20.0, "node cut off", 45.0, node=node), runs_s=40.0, kind=kind)
    assert starts(told) == 1 and when(told, "job 1 is COMPLETED") < 75.0


@EACH
def test_it_is_found_by_a_controller_that_never_saw_the_node(kind: str, node: int) -> None:
    away = Fault(20.0, "controller killed", 3.0)
    for runs_s, until_s in ((90.0, 95.0), (40.0, 75.0)):
        told = tale(away, Fault(19.9, "node apart", 45.0, node=node), runs_s=runs_s, kind=kind)
        assert starts(told) == 1 and when(told, "job 1 is COMPLETED") < until_s


@EACH
def test_it_starts_elsewhere_when_the_node_is_lost(kind: str, node: int) -> None:
    cut = Fault(20.0, "node cut off", 900.0, node=node)
    told = tale(cut, runs_s=300.0, lease_s=30.0, kind=kind)
    on_it = starts(told) == 2
    assert on_it or starts(told) == 1
    if on_it:
        again_s = [float(line.split()[0]) for line in told if " starts on " in line][1]
        assert when(told, "worker 1/0 of generation 1 ends") < again_s < 110.0


def test_one_of_the_three_nodes_has_it() -> None:
    """Or the tests above would show nothing."""
    cuts = [Fault(20.0, "node cut off", 900.0, node=node) for node in range(NODES)]
    counts = [starts(tale(cut, runs_s=300.0, lease_s=30.0)) for cut in cuts]
    assert sorted(counts) == [1, 1, 2]


def test_who_cancels_it_need_not_wait_for_the_node() -> None:
    for node in range(NODES):
        cut = Fault(20.0, "node cut off", 45.0, node=node)
        told = tale(cut, runs_s=300.0, verbs=(Verb(40.0, "cancel", of=0),))
        assert starts(told) == 1 and when(told, "job 1 is CANCELLED") < 52.0


def wrongs(node: int) -> tuple[str, ...]:
    job = Submission(0.0, "plain", 1, 1, 1, 90.0)
    cut = Fault(20.0, "node cut off", 45.0, node=node)
    verbs = (Verb(40.0, "requeue", of=0),)
    return play(Story(1, "fifo", (job,), verbs, (cut,), nodes=NODES, lease_s=60.0)).wrong


def test_one_that_must_leave_waits_though_it_is_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def requeue(self: Admission, job: LiveJob, why: str) -> None:
        """As for one that ran out of memory beside another: the policy may start it at once."""
        self.terminations.requeue(job, why, job.spec.grace_s)

    def lose(self: Leases, job: LiveJob) -> None:
        """The mistake that this must find."""
        for node in self.monitor.awaited(job.record.nodes) if job.gang is not None else ():
            self.gangs.of(job).lose(node)

    monkeypatch.setattr(Admission, "requeue", requeue)
    assert not any(map(wrongs, range(NODES)))
    monkeypatch.setattr(Leases, "part_leaving", lose)
    assert any("starts, and" in text for node in range(NODES) for text in wrongs(node))


def test_of_its_nodes_one_may_be_cut_off() -> None:
    undisturbed = starts(tale(runs_s=90.0, gpus=4))
    assert undisturbed > 1
    for node in range(NODES):
        told = tale(Fault(20.0, "node cut off", 45.0, node=node), runs_s=90.0, gpus=4)
        assert starts(told) == undisturbed and when(told, "job 1 is COMPLETED") < 95.0
