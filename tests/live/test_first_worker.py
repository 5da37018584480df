"""A job with a range of GPUs starts one worker, and the others once its program has made a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_gang import RULES, Table

from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang_events import GangFormed, NoTrainJob
from dovetail.live.workers.roster import UNREPORTED
from dovetail.wire.worker import Meeting

BOTH = ((0, 0, 0), (1, 0, 1))
SILENT_S = RULES.silent_s


@pytest.fixture
def ranged() -> Iterator[Table]:
    """A job of 1 GPU or more whose program nobody has heard yet."""
    table = Table(trains=True, first=FirstWorker(one_first=True, spoke=False))
    yield table
    table.check()


def test_one_worker_starts_and_trains_alone_until_the_others_join(ranged: Table) -> None:
    ranged.want(*BOTH)
    assert ranged.names(0.0) == ["start 0@0.0 g1", "0: g1 is 0"]
    ranged.start(0)
    assert ranged.names(1.0) == []
    ranged.enter(1, 0, now=5.0)
    assert ranged.names(5.0) == ["start 1@0.1 g2", "0,1: g2 is 0,1"]
    assert ranged.heard() == [GangFormed(1)]
    ranged.start(1, now=5.0, generation=2)
    ranged.enter(2, 0, 1, now=9.0)
    ranged.orders(9.0)
    assert ranged.heard() == [GangFormed(2)]


def test_an_ordinary_program_runs_once_and_its_end_is_the_end_of_the_job(ranged: Table) -> None:
    ranged.want(*BOTH)
    ranged.orders(0.0)
    ranged.start(0)
    for now in (10.0, RULES.start_s + 1.0, 10 * RULES.start_s):
        assert not any("start" in said or "end" in said for said in ranged.names(now))
    ranged.end(0, 0, 20 * RULES.start_s)
    assert UNREPORTED in ranged.heard()
    assert not ranged.gang.roster.first.heard


def test_a_silent_program_counts_as_running_after_a_while(ranged: Table) -> None:
    ranged.want(*BOTH)
    ranged.orders(0.0)
    ranged.start(0)
    ranged.orders(1.0)
    assert ranged.heard() == [] and ranged.gang.next_s(1.0) <= SILENT_S
    ranged.orders(SILENT_S)
    assert ranged.heard() == [NoTrainJob()]
    ranged.orders(2 * SILENT_S)
    assert ranged.heard() == [], "once is enough"
    ranged.enter(1, 0, now=3 * SILENT_S)
    assert "start 1@0.1 g2" in ranged.names(3 * SILENT_S), "it loaded for long, and no more"


def test_where_one_gpu_is_too_few_the_first_waits_for_the_others() -> None:
    table = Table(trains=True, first=FirstWorker(one_first=True, alone=False, spoke=False))
    table.want(*BOTH)
    assert table.names(0.0) == ["start 0@0.0 g1", "0: g1 is 0,1"]
    table.start(0)
    table.say(0, 1.0, meeting=Meeting(1, "here"))
    assert table.names(1.0) == ["start 1@0.1 g1", "1: g1 is 0,1", "1: meet g1 at here"]
    table.check()


def test_a_program_that_once_made_its_job_starts_whole() -> None:
    table = Table(trains=True, first=FirstWorker(one_first=True, spoke=True))
    table.want(*BOTH)
    assert table.names(0.0) == ["start 0@0.0 g1", "start 1@0.1 g1", "0,1: g1 is 0,1"]


def test_a_worker_that_is_moved_before_its_first_word_is_replaced_by_one(ranged: Table) -> None:
    ranged.want(*BOTH)
    ranged.orders(0.0)
    ranged.start(0)
    ranged.want((2, 1, 0), (3, 1, 1))
    assert ranged.names(1.0) == ["end 0 in 5"]
    ranged.end(0, -15, 2.0)
    assert "start 2@1.0 g2" in ranged.names(2.0)
    assert list(ranged.gang.roster.workers) == [2]
