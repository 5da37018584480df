"""Jobs that do not use their GPUs are shown, warned, and reclaimed if the operator says so."""

from dataclasses import replace

from live_stage import RULES, Stage

from dovetail.core.messages import Stopped, Warned
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.agent import AgentReport, IdleReport, IdleWorker

HALF_HOUR = replace(RULES, reclaim_idle_s=1800.0)


def idle(stage: Stage, t: float, *workers: tuple[int, int, float], node: int = 0) -> None:
    report = IdleReport(tuple(IdleWorker(*worker) for worker in workers))
    stage.at(t, lambda: stage.take([AgentReport(node, idle=report)]))


def idle_for(stage: Stage, job: int) -> float:
    assert stage.world is not None and stage.world.status is not None
    (run,) = [r for r in stage.world.status.running if r.job == job]
    return stage.world.status.now_s - run.idle_s


def warned(stage: Stage) -> list[float]:
    return [round(f.t) for f in stage.facts if isinstance(f, Warned)]


def test_a_job_is_idle_once_all_of_its_workers_are() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, gpus=2, duration_s=5000.0)
    idle(s, 700.0, (1, 0, 600.0))
    s.play(701.0)
    assert idle_for(s, 1) < 0
    idle(s, 710.0, (1, 0, 610.0), (1, 1, 300.0))
    s.play(720.0)
    assert 305.0 < idle_for(s, 1) < 315.0
    idle(s, 730.0)
    s.play(740.0)
    assert idle_for(s, 1) < 0


def test_how_long_a_job_was_idle_is_forgotten_with_its_gpus() -> None:
    s = Stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=5000.0)
    idle(s, 700.0, (1, 0, 600.0))
    s.ask(720.0, "requeue", 1)
    # By one controller: the next one would know nothing of it anyway.
    found: list[float] = []
    for at_s in (719.0, 740.0):
        s.at(at_s, lambda: found.append(idle_for(s, 1)))
    s.play(760.0)
    before_s, after_s = found
    assert before_s > 600.0 and after_s < 0


def test_without_the_operators_word_nothing_is_reclaimed() -> None:
    s = Stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=5000.0)
    for at_s in (90_000.0, 90_010.0):
        idle(s, at_s / 100, (1, 0, at_s))
    s.play(1000.0)
    assert s.states()[1] is State.RUNNING and warned(s) == []


def test_a_job_that_trains_is_warned_and_then_waits_again() -> None:
    s = Stage(nodes=1, gpus=1, rules=HALF_HOUR)
    s.submit(1.0, duration_s=9000.0)
    for at_s in range(100, 1950, 10):
        idle(s, float(at_s), (1, 0, at_s - 50.0))
    s.play(1900.0)
    assert warned(s) == [1400]
    orders = [order.warn for _, _, order in s.orders if order.warn is not None]
    assert [w.text for w in orders] == [
        "this job does not use its GPUs; if that lasts for 450 s more, it saves and waits again"
    ]
    stops = [(round(f.t), f.why) for f in s.of(1) if isinstance(f, Stopped)]
    assert stops == [(1850, "idle")]
    assert s.record(1).retries == 0 and s.states()[1] is not State.CANCELLED


def test_a_plain_program_is_warned_and_then_ended() -> None:
    s = Stage(nodes=1, gpus=1, rules=HALF_HOUR)
    s.submit(1.0, duration_s=9000.0, requeue=False)
    for at_s in range(100, 2000, 10):
        idle(s, float(at_s), (1, 0, at_s - 50.0))
    s.play(2000.0)
    record = s.record(1)
    assert (record.state, record.reason) == (State.CANCELLED, "IdleLimit")
    assert record.detail == "it did not use its GPUs for 30 min"


def test_a_job_that_works_again_after_the_warning_goes_on() -> None:
    s = Stage(nodes=1, gpus=1, rules=HALF_HOUR)
    s.submit(1.0, duration_s=9000.0)
    idle(s, 1500.0, (1, 0, 1400.0))
    idle(s, 1600.0)
    idle(s, 2000.0, (1, 0, 300.0))
    s.play(2100.0)
    assert warned(s) == [1500] and s.states()[1] is State.RUNNING


def test_reports_of_workers_that_no_job_has_change_nothing() -> None:
    s = Stage(nodes=1, gpus=1, rules=HALF_HOUR)
    s.submit(1.0, duration_s=900.0)
    idle(s, 100.0, (1, 9, 5000.0), (77, 0, 5000.0))
    s.play(200.0)
    assert s.states()[1] is State.RUNNING and idle_for(s, 1) < 0
