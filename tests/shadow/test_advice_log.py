"""The log of a shadow, and what its report makes of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.shadow.advice import advise
from dovetail.shadow.advice_log import append, read
from dovetail.shadow.past_jobs import PastJob
from dovetail.shadow.snapshot import SlurmJob, Snapshot
from dovetail.shadow.worth import Worth, worth
from tests.shadow.scene_by_hand import NOW_S, job, node, running, scene

LIMITS = {"forecast": "limit", "placement": "strict"}


def look(path: Path, snapshot: Snapshot, policy: str) -> None:
    advice = advise(
        snapshot, parse_policy(policy), forecast="limit", placing=Placing.parse("strict")
    )
    append(path, snapshot, advice, **LIMITS)


def busy() -> Snapshot:
    endless = job(3, 2, limit_s=float("inf"))
    return scene([node("n1")], running(1, n1=4), job(2, 4, limit_s=60.0), endless)


def test_a_log_gives_back_the_snapshot_it_began_with(tmp_path: Path) -> None:
    path = tmp_path / "srtf.jsonl"
    look(path, busy(), "srtf")
    look(path, replace(busy(), time_s=NOW_S + 60.0), "srtf")
    log = read(path)
    assert log.snapshot == busy()
    assert (log.looks, log.last_s) == (2, NOW_S + 60.0)
    assert log.actions == {"preempt": 2, "start": 2}
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "begin",
        "advice",
        "advice",
    ]


def test_another_policy_or_other_nodes_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "shadow.jsonl"
    look(path, busy(), "srtf")
    later = replace(busy(), time_s=NOW_S + 60.0)
    look(path, later, "sjf")
    assert read(path).policy.startswith("sjf") and read(path).looks == 1
    grown = replace(later, time_s=NOW_S + 120.0, nodes=(*later.nodes, node("n2")))
    look(path, grown, "sjf")
    assert read(path).snapshot == grown and read(path).looks == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda _: "", "is no log of a shadow"),
        (lambda _: "sbatch: error\n", "line 1: is not JSON"),
        (lambda _: '{"kind":"other"}\n', "line 1: is no line of a shadow's log"),
        (lambda text: text.replace('"version":1', '"version":9'), "is of version 9"),
        (lambda text: text.replace('"slurm_id":"1",', ""), "has a damaged snapshot"),
    ],
)
def test_a_damaged_log_is_one_clear_error(
    tmp_path: Path, damage: Callable[[str], str], words: str
) -> None:
    path = tmp_path / "srtf.jsonl"
    look(path, busy(), "srtf")
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError, match=words):
        read(path)


def ended(one: SlurmJob, start_s: float, end_s: float) -> PastJob:
    """Returns a job that ran between two times, in seconds after the log began."""
    plain = replace(one, held=(), start_s=None)
    return PastJob(plain, one.submit_s, NOW_S + start_s, NOW_S + end_s, end_s - start_s)


def judged(path: Path, past: list[PastJob], policy: str, snapshot: Snapshot) -> Worth:
    look(path, snapshot, policy)
    return worth(read(path), past, Switching.parse("none"))


def test_a_report_compares_the_waits_of_the_same_jobs(tmp_path: Path) -> None:
    """One node; a job holds it for 100 s more, then Slurm ran 2 (50 s) before 3 (10 s).

    sjf would run 3 first: 2 waits from 0 to 110 instead of 100 s, 3 to 100 instead of 150 s.
    """
    first, second, third = running(1, n1=4), job(2, 4), job(3, 4, limit_s=60.0)
    past = [ended(first, -30, 100), ended(second, 100, 150), ended(third, 150, 160)]
    result = judged(tmp_path / "x", past, "sjf", scene([node("n1")], first, second, third))
    assert (result.jobs, result.sooner, result.later) == (2, 1, 1)
    assert result.recorded.wait_s == pytest.approx((100 + 150) / 2)
    assert result.simulated.wait_s == pytest.approx((110 + 100) / 2)
    assert (result.recorded.started, result.simulated.started) == (2, 2)
    assert (result.recorded.ended, result.simulated.ended) == (3, 3)
    assert result.recorded.used == pytest.approx(1.0)
    assert result.simulated.used == pytest.approx(1.0)
    assert result.preemptions == 0


def test_a_preempting_policy_is_charged_for_its_preemptions(tmp_path: Path) -> None:
    first, second = running(1, n1=4), job(2, 4, limit_s=60.0)
    past = [ended(first, -30, 100), ended(second, 100, 150)]
    result = judged(tmp_path / "x", past, "srtf", scene([node("n1")], first, second))
    assert result.preemptions == 1
    # Job 2 starts at once; job 1 waits for its 50 s and ends at 150 instead of 100.
    assert result.simulated.wait_s == 0.0
    assert result.recorded.wait_s == 100.0


def test_jobs_that_came_later_and_jobs_that_were_cancelled_take_part(tmp_path: Path) -> None:
    first, gone = running(1, n1=4), job(2, 4)
    new = replace(job(4, 4), submit_s=NOW_S + 20.0)
    past = [
        ended(first, -30, 100),
        PastJob(gone, gone.submit_s, None, NOW_S + 40.0, 0.0),
        ended(new, 100, 130),
    ]
    result = judged(tmp_path / "x", past, "fifo", scene([node("n1")], first, gone))
    assert result.jobs == 2
    # 40 s until the cancellation, 80 s of the job that came at 20 s, on both sides alike.
    assert result.recorded.wait_s == pytest.approx(60.0)
    assert result.simulated.wait_s == pytest.approx(60.0)
    assert (result.recorded.started, result.simulated.started) == (1, 1)


def test_what_a_report_cannot_know_is_said(tmp_path: Path) -> None:
    first, second, third = running(1, n1=4), job(2, 4), job(3, 1)
    unfinished = PastJob(replace(first, held=()), first.submit_s, NOW_S - 30.0, None, 90.0)
    waiting = PastJob(second, second.submit_s, None, None, 0.0)
    over = ended(replace(job(5, 1), submit_s=NOW_S + 1.0), 2, 60)
    result = judged(
        tmp_path / "x",
        [unfinished, waiting, over],
        "fifo",
        scene([node("n1")], first, second, third),
    )
    assert "not ended, and taken to run to the time limit: 2 jobs" in result.caveats
    assert "left out: 1 job of the beginning that sacct does not have" in result.caveats


def test_a_log_without_a_past_says_so(tmp_path: Path) -> None:
    look(tmp_path / "x", busy(), "srtf")
    with pytest.raises(InputError, match="has nothing that happened since"):
        worth(read(tmp_path / "x"), [], Switching())
