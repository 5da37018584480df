"""The agent as a function: whatever comes twice, late or out of turn changes nothing more."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from signal import SIGKILL, SIGTERM

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.live.node.agent import KILL_AGAIN_S, REPEAT_S, START_AGAIN_S, Agent
from dovetail.live.node.fence import JOBS_KEPT, Fence, add, contains
from dovetail.live.node.launcher import (
    LEFT,
    LOST_BY_NODE,
    NEVER_STARTED,
    AdoptedWorker,
    DiskFull,
    LaunchError,
    StartDeferred,
    WorkerExit,
)
from dovetail.wire.agent import (
    REPORTS,
    AgentOrder,
    AgentReport,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
    WorkerDeferred,
    WorkerEnded,
    WorkerStarted,
)
from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Finished,
    FromWorker,
    Hello,
    Meet,
    Meeting,
    Ready,
    Regroup,
    Saved,
    ToWorker,
    Training,
    WorkerLeft,
)

LAUNCH = (("program",), "/job", "/job/out", "/job")


@dataclass
class Stage:
    """A launcher that plays: workers live until they are killed or told to end."""

    starts: list[tuple[int, int]] = field(default_factory=list)
    alive: dict[tuple[int, int], StartWorker] = field(default_factory=dict)
    signals: list[tuple[int, int, int]] = field(default_factory=list)
    told: list[tuple[int, int, ToWorker]] = field(default_factory=list)
    kept: list[FromWorker] = field(default_factory=list)
    limits: list[StartWorker] = field(default_factory=list)
    ends: list[WorkerExit] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)
    from_before: list[AdoptedWorker] = field(default_factory=list)
    broken: bool = False
    full: bool = False
    stubborn: bool = False
    waits_for: str = ""

    def adopt(self) -> list[AdoptedWorker]:
        return self.from_before

    def start(self, order: StartWorker, token: str, now: float) -> None:
        if self.broken:
            raise LaunchError("no such program", 127)
        if self.full:
            raise DiskFull
        if self.waits_for:
            raise StartDeferred(self.waits_for)
        self.starts.append((order.job, order.worker))
        self.alive[order.job, order.worker] = order

    def limit(self, order: StartWorker) -> None:
        self.limits.append(order)

    def signal(self, job: int, worker: int, number: int) -> None:
        self.signals.append((job, worker, number))
        if number == SIGKILL or not self.stubborn:
            self.end(job, worker, -number)

    def end(self, job: int, worker: int, code: int) -> None:
        if self.alive.pop((job, worker), None):
            self.ends.append(WorkerExit(job, worker, code))

    def send(self, job: int, worker: int, message: ToWorker) -> None:
        self.told.append((job, worker, message))

    def store(self, job: int, worker: int, message: FromWorker) -> None:
        self.kept.append(message)

    def poll(self) -> list[WorkerExit]:
        ends, self.ends = self.ends, []
        return ends

    def forget(self, job: int, worker: int) -> None:
        self.forgotten.append((job, worker))


def scene(**stage: object) -> tuple[Agent, Stage]:
    launcher = Stage(**stage)  # type: ignore[arg-type]
    return Agent(3, ("a", "b"), launcher, token=lambda: "secret"), launcher


def start(job: int = 1, worker: int = 0, generation: int = 1, gpu: int = 0) -> StartWorker:
    return StartWorker(job, worker, generation, gpu, *LAUNCH)


def do(agent: Agent, epoch: int = 1, now: float = 0.0, **order: object) -> list[AgentReport]:
    return agent.handle(AgentOrder(epoch, **order), now)  # type: ignore[arg-type]


def states(agent: Agent) -> dict[tuple[int, int], int | None]:
    return {(s.job, s.worker): s.exit_code for s in agent.inventory().workers}


def test_a_worker_is_started_once_and_said_to_run_each_time() -> None:
    agent, stage = scene()
    started = [AgentReport(3, started=WorkerStarted(1, 0, 1, 0))]
    assert do(agent, start=start()) == started
    assert do(agent, start=start()) == started
    assert stage.starts == [(1, 0)]


def test_an_older_controller_is_not_obeyed() -> None:
    agent, stage = scene()
    assert do(agent, epoch=5, hail=InventoryRequest(5))[0].inventory is not None
    for order in ({"start": start()}, {"hail": InventoryRequest(4)}, {"end": EndWorker(1, 0, 0.0)}):
        assert do(agent, epoch=4, **order) == []
    assert stage.starts == [] and states(agent) == {}


def test_an_older_generation_is_not_started() -> None:
    agent, stage = scene()
    do(agent, tell=NotifyWorkers(1, (9,), regroup=Regroup(4, (9,))))
    assert do(agent, start=start(generation=3)) == []
    assert stage.starts == []
    assert do(agent, start=start(generation=4))


def test_a_worker_that_was_forgotten_is_never_started_again() -> None:
    agent, stage = scene()
    do(agent, start=start())
    stage.end(1, 0, 0)
    agent.tick(1.0)
    do(agent, forget=Forget(1, 0))
    assert stage.forgotten == [(1, 0)]
    for generation in (1, 2, 99):
        assert do(agent, start=start(generation=generation)) == []
    assert stage.starts == [(1, 0)] and states(agent) == {}


def test_a_worker_that_a_rebooted_node_has_lost_is_reported_and_not_started_again() -> None:
    agent, stage = scene()
    (report,) = do(agent, start=replace(start(generation=2), begun=True))
    assert report.ended == WorkerEnded(1, 0, -1, -9, LOST_BY_NODE)
    assert stage.starts == [] and states(agent) == {(1, 0): -9}


def test_an_end_that_overtakes_its_start_fences_the_number() -> None:
    agent, stage = scene()
    (report,) = do(agent, end=EndWorker(1, 0, 10.0))
    assert report.ended == WorkerEnded(1, 0, -1, -9, NEVER_STARTED, asked=True)
    (late,) = do(agent, start=start())
    assert late.ended is not None, "its end is said, for whoever missed it"
    assert stage.starts == []
    do(agent, forget=Forget(1, 0))
    assert do(agent, start=start()) == []
    (again,) = do(agent, end=EndWorker(1, 0, 1.0))
    # The number is used up for good: whoever still asks is told so, and infers it from no silence.
    assert again.ended == WorkerEnded(1, 0, -1, -9, LOST_BY_NODE, asked=True)
    assert stage.starts == []


def test_an_end_is_said_until_it_is_forgotten() -> None:
    agent, stage = scene()
    do(agent, start=start())
    stage.end(1, 0, 7)
    said = [t for t in (0.0, 0.5, REPEAT_S, REPEAT_S + 0.5, 2 * REPEAT_S) if agent.tick(t)]
    assert said == [0.0, REPEAT_S, 2 * REPEAT_S]
    assert states(agent) == {(1, 0): 7}
    do(agent, forget=Forget(1, 0))
    assert agent.tick(100.0) == [] and states(agent) == {}


def test_what_is_said_again_goes_by_the_clock_of_the_machine_at_any_speed() -> None:
    stage = Stage(stubborn=True)
    agent = Agent(3, ("gpu0",), stage, incarnation="i", token=lambda: "secret", speed=2000.0)
    do(agent, start=start())
    stage.end(1, 0, 7)
    times = [float(t) for t in range(0, 13_000, 100)]
    assert [t for t in times if agent.tick(t)] == [0.0, 4000.0, 8000.0, 12_000.0]


def test_a_living_worker_cannot_be_forgotten() -> None:
    agent, _ = scene()
    do(agent, start=start())
    do(agent, forget=Forget(1, 0))
    assert states(agent) == {(1, 0): None}


def test_grace_ends_in_sigkill_and_may_be_shortened_but_not_extended() -> None:
    agent, stage = scene(stubborn=True)
    do(agent, start=start())
    do(agent, end=EndWorker(1, 0, 10.0), now=100.0)
    do(agent, end=EndWorker(1, 0, 60.0), now=101.0)
    assert agent.next_due() == 110.0
    do(agent, end=EndWorker(1, 0, 2.0), now=102.0)
    agent.tick(103.9)
    assert stage.signals == [(1, 0, SIGTERM)]
    agent.tick(104.0)
    assert stage.signals == [(1, 0, SIGTERM), (1, 0, SIGKILL)]
    (end,) = agent.tick(104.0)
    assert end.ended is not None and end.ended.exit_code == -SIGKILL


def test_an_end_says_whether_it_was_asked_for() -> None:
    agent, stage = scene()
    reports = []
    for worker, order in ((0, None), (1, EndWorker(1, 1, 5.0)), (2, EndWorker(1, 2, 0.0))):
        do(agent, start=start(worker=worker))
        if order is not None:
            reports += do(agent, end=order)
        stage.end(1, worker, 0)
    # One that ended before its order came did so by itself.
    do(agent, start=start(worker=3))
    stage.end(1, 3, 0)
    reports += do(agent, end=EndWorker(1, 3, 5.0))
    reports += agent.tick(1.0)
    asked = {r.ended.worker: r.ended.asked for r in reports if r.ended is not None}
    assert asked == {0: False, 1: True, 2: True, 3: False}
    assert {s.worker: s.asked for s in agent.inventory().workers} == asked


def test_a_worker_found_may_be_asked_again() -> None:
    agent, stage = scene(from_before=[AdoptedWorker(start(), "t", 1.0)], stubborn=True)
    stage.alive[1, 0] = start()
    do(agent, end=EndWorker(1, 0, 5.0))
    assert stage.signals == [(1, 0, SIGTERM)]


def test_no_grace_kills_at_once_and_again_until_it_is_gone() -> None:
    agent, stage = scene()
    do(agent, start=start())
    kept = dict(stage.alive)
    do(agent, end=EndWorker(1, 0, 0.0), now=5.0)
    stage.alive, stage.ends = kept, []  # it hangs in the kernel
    agent.tick(5.0 + KILL_AGAIN_S)
    assert stage.signals == [(1, 0, SIGKILL)] * 2


def test_what_cannot_be_started_ends_with_a_reason() -> None:
    agent, _ = scene(broken=True)
    (report,) = do(agent, start=start())
    assert report.ended == WorkerEnded(1, 0, 1, 127, "no such program")
    (report,) = do(agent, start=start(worker=1, gpu=2))
    assert report.ended is not None and "no GPU 2" in report.ended.why


def test_on_a_full_disk_a_start_counts_as_not_heard_and_can_come_again() -> None:
    agent, stage = scene(full=True)
    assert do(agent, start=start()) == [] and agent.inventory().workers == ()
    stage.full = False
    (report,) = do(agent, start=start())
    assert report.started is not None and stage.starts == [(1, 0)]


MEMORY = "the driver has not yet freed the memory of an earlier worker on GPU 0"


def waiting() -> tuple[Agent, Stage]:
    """Returns an agent that cannot start a worker yet, and has said so."""
    agent, stage = scene(waits_for=MEMORY)
    assert do(agent, start=start()) == [AgentReport(3, deferred=WorkerDeferred(1, 0, MEMORY))]
    return agent, stage


def test_a_start_that_must_wait_is_tried_again_until_it_succeeds() -> None:
    agent, stage = waiting()
    assert agent.inventory().workers == () and agent.next_due() == START_AGAIN_S
    assert agent.tick(START_AGAIN_S) == [], "it is said once for each order"
    stage.waits_for = ""
    assert agent.tick(1.9 * START_AGAIN_S) == []
    assert agent.tick(2 * START_AGAIN_S) == [AgentReport(3, started=WorkerStarted(1, 0, 1, 0))]
    (row,) = agent.inventory().workers
    assert row.exit_code is None and row.started_s == 2 * START_AGAIN_S
    assert stage.starts == [(1, 0)] and agent.next_due() == float("inf")


def test_a_start_that_waits_goes_by_its_newest_order() -> None:
    agent, stage = waiting()
    newer = replace(start(generation=2), memory_bytes=40)
    assert [r.deferred for r in do(agent, start=newer)] == [WorkerDeferred(1, 0, MEMORY)]
    assert do(agent, start=start()) == [], "an older order comes late"
    stage.waits_for = ""
    (report,) = agent.tick(START_AGAIN_S)
    assert report.started == WorkerStarted(1, 0, 2, 0) and known(agent) == (2, 40)


def test_a_start_that_waits_is_dropped_when_its_job_goes_on_without_it() -> None:
    agent, stage = waiting()
    do(agent, tell=NotifyWorkers(1, (9,), regroup=Regroup(2, (9,))))
    stage.waits_for = ""
    assert agent.tick(START_AGAIN_S) == [] and stage.starts == []
    assert do(agent, start=start(generation=2))[0].started is not None


def test_a_worker_that_is_ended_while_it_waits_is_never_started() -> None:
    agent, stage = waiting()
    (report,) = do(agent, end=EndWorker(1, 0, 5.0))
    assert report.ended == WorkerEnded(1, 0, -1, -9, NEVER_STARTED, asked=True)
    stage.waits_for = ""
    assert agent.tick(START_AGAIN_S) == [] and stage.starts == []
    assert do(agent, start=start())[0].ended is not None and stage.starts == []


def test_a_newer_controller_decides_anew_about_a_start_that_waits() -> None:
    agent, stage = waiting()
    (report,) = do(agent, epoch=2, hail=InventoryRequest(2))
    assert report.inventory is not None and report.inventory.workers == ()
    stage.waits_for = ""
    assert agent.tick(START_AGAIN_S) == [] and stage.starts == []
    assert do(agent, epoch=2, start=start())[0].started is not None


def test_a_start_that_waits_since_before_its_node_was_lost_is_dropped() -> None:
    """Its job may have been started elsewhere: no inventory had shown it."""
    agent, stage = waiting()
    do(agent, hail=InventoryRequest(1, 5, void_before=4))
    stage.waits_for = ""
    assert agent.tick(START_AGAIN_S) == [] and stage.starts == []


@pytest.mark.parametrize("later", [False, True])
def test_the_end_of_a_worker_that_left_says_so_itself(later: bool) -> None:
    """The report that it left may be lost, and then 0 would mean that its job is done."""
    agent, stage = scene()
    do(agent, start=start())
    agent.receive(1, 0, WorkerLeft(1, 20), 1.0)
    if later:
        launch, exit_ = stage.alive[1, 0], WorkerExit(1, 0, 0)
        adopted = AdoptedWorker(launch, "secret", 0.0, exit_, tuple(stage.kept))
        agent, stage = scene(from_before=[adopted])
    else:
        stage.end(1, 0, 0)
    ended = [r.ended for r in agent.tick(2.0) if r.ended is not None]
    assert [end.why for end in ended] == [LEFT]
    assert [row.why for row in agent.inventory().workers] == [LEFT]


def test_nothing_that_waits_is_started_when_the_cluster_goes_down() -> None:
    agent, stage = waiting()
    assert agent.end_all(0.0, 0.0) == [] and agent.alive == ()
    stage.waits_for = ""
    assert agent.tick(START_AGAIN_S) == [] and stage.starts == []


def test_a_report_without_a_deferral_is_read_and_one_with_it_comes_back() -> None:
    assert REPORTS.decode(REPORTS.encode(AgentReport(3))) == AgentReport(3)
    said = AgentReport(3, deferred=WorkerDeferred(1, 0, MEMORY))
    assert REPORTS.decode(REPORTS.encode(said)) == said
    assert b"deferred" not in REPORTS.encode(AgentReport(3))


def test_a_worker_hears_what_was_said_before_it_listened() -> None:
    agent, stage = scene()
    do(agent, start=start())
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0, 5))))
    do(agent, tell=NotifyWorkers(1, (0,), meet=Meet(1, "old")))
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(2, (0, 6))))
    do(agent, tell=NotifyWorkers(1, (0,), meet=Meet(2, "here")))
    do(agent, tell=NotifyWorkers(1, (0,), checkpoint=Checkpoint()))
    assert stage.told == []
    agent.receive(1, 0, Hello("1/0", "secret", 1), 1.0)
    told = [message for _, _, message in stage.told]
    assert told == [Regroup(2, (0, 6)), Meet(2, "here"), Checkpoint()]
    stage.told.clear()
    agent.receive(1, 0, Saved(5, 50), 2.0)
    agent.disconnected(1, 0)
    do(agent, tell=NotifyWorkers(1, (0,), abandon=Abandon(2)))
    agent.receive(1, 0, Hello("1/0", "secret", 1, generation=2), 3.0)
    assert [m for _, _, m in stage.told] == [Abandon(2)], "it trains in 2 and has saved"


def test_who_is_wanted_again_is_not_told_once_more_to_leave() -> None:
    agent, stage = scene()
    do(agent, start=start())
    agent.receive(1, 0, Hello("1/0", "secret", 1), 1.0)
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
    do(agent, tell=NotifyWorkers(1, (0,), checkpoint=Checkpoint(leave=True)))
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(2, (0,))))
    agent.disconnected(1, 0)
    stage.told.clear()
    agent.receive(1, 0, Hello("1/0", "secret", 1, generation=1), 2.0)
    assert [m for _, _, m in stage.told] == [Regroup(2, (0,))]


def test_an_order_told_twice_lets_the_agent_repeat_the_answers() -> None:
    agent, _ = scene()
    do(agent, start=start())
    agent.receive(1, 0, Hello("1/0", "secret", 1), 1.0)
    order = {"tell": NotifyWorkers(1, (0,), regroup=Regroup(1, (0, 1)))}
    assert do(agent, **order) == []
    for message in (Meeting(1, "here"), Ready(1), Entered(1, 0, 0)):
        agent.receive(1, 0, message, 2.0)
    said = [r.said for r in do(agent, **order)]
    assert [s.meeting or s.ready or s.entered for s in said if s] == [
        Meeting(1, "here"),
        Ready(1),
        Entered(1, 0, 0),
    ]


def test_the_inventory_says_all_again() -> None:
    agent, stage = scene()
    do(agent, start=start())
    said: list[FromWorker] = [Meeting(1, "here"), Ready(1), Entered(1, 0, 0), Saved(3, 30)]
    said += [Training(1, 4, 40, 10.0, 0.1), Finished(5, 50)]
    for message in said:
        agent.receive(1, 0, message, 2.0)
    stage.end(1, 0, 0)
    agent.tick(3.0)
    (state,) = agent.inventory().workers
    assert (state.entered, state.ready, state.exit_code) == (1, 1, 0)
    assert [state.meeting, state.saved, state.training, state.finished] == [
        said[0],
        said[3],
        said[4],
        said[5],
    ]
    assert stage.kept == [said[2], said[3], said[5]]


def test_a_newer_order_for_a_running_worker_changes_its_limits_alone() -> None:
    agent, stage = scene()
    do(agent, start=start())
    do(agent, start=StartWorker(1, 0, 2, 0, *LAUNCH, share=0.5))
    assert stage.starts == [(1, 0)] and [o.share for o in stage.limits] == [0.5]


def bounded(generation: int, memory_bytes: int) -> StartWorker:
    return StartWorker(1, 0, generation, 0, *LAUNCH, trains=True, memory_bytes=memory_bytes)


def known(agent: Agent) -> tuple[int, int]:
    """Returns by which generation's limits a worker goes, and what it may hold."""
    (row,) = agent.inventory().workers
    return row.generation, row.memory_bytes


def test_one_that_trains_keeps_what_it_holds_until_it_enters_the_tighter_generation() -> None:
    agent, stage = scene()
    do(agent, start=bounded(1, 0))
    agent.receive(1, 0, Hello("1/0", "secret", 9), 0.0)
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
    agent.receive(1, 0, Entered(1, 0, 0), 0.0)
    before = [AgentReport(3, started=WorkerStarted(1, 0, 1, 0))]
    assert do(agent, start=bounded(2, 40)) == before, "it is not within that bound yet"
    assert stage.limits == [bounded(1, 0)] and known(agent) == (1, 0)
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(2, (0,), memory_bytes=40)))
    said = agent.receive(1, 0, Entered(2, 5, 80), 1.0)
    assert said[1:] == [AgentReport(3, started=WorkerStarted(1, 0, 2, 0))]
    assert stage.limits[1:] == [bounded(2, 40)] and known(agent) == (2, 40)
    assert do(agent, start=bounded(2, 40)) == said[1:] and len(stage.limits) == 2
    assert agent.receive(1, 0, Entered(3, 9, 99), 2.0)[1:] == [], "once"


def test_more_memory_is_given_at_once() -> None:
    agent, stage = scene()
    do(agent, start=bounded(1, 40))
    agent.receive(1, 0, Hello("1/0", "secret", 9), 0.0)
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,), memory_bytes=40)))
    agent.receive(1, 0, Entered(1, 0, 0), 0.0)
    do(agent, start=bounded(2, 0))
    assert stage.limits == [bounded(1, 0)] and known(agent) == (1, 0)


def test_one_that_was_told_nothing_yet_begins_within_its_newest_bound() -> None:
    agent, stage = scene()
    do(agent, start=bounded(1, 0))
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
    do(agent, start=bounded(2, 40))
    assert stage.limits == [bounded(2, 40)] and known(agent) == (2, 40)
    agent.receive(1, 0, Hello("1/0", "secret", 9), 0.0)
    assert stage.told == [], "the older generation, in which it was not bound, is not for it"
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(2, (0,), memory_bytes=40)))
    assert [m for *_, m in stage.told] == [Regroup(2, (0,), memory_bytes=40)]


def test_one_that_was_told_may_begin_by_what_it_was_told() -> None:
    agent, stage = scene()
    do(agent, start=bounded(1, 0))
    agent.receive(1, 0, Hello("1/0", "secret", 9), 0.0)
    do(agent, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
    do(agent, start=bounded(2, 40))
    assert stage.limits == [bounded(1, 0)] and known(agent) == (1, 0)


def test_a_new_agent_believes_in_a_tighter_bound_when_its_worker_says_where_it_trains() -> None:
    found = AdoptedWorker(bounded(1, 0), "t", 1.0, None, (Entered(1, 0, 0),))
    agent, _ = scene(from_before=[found])
    do(agent, start=bounded(2, 40))
    assert known(agent) == (1, 0)
    said = agent.receive(1, 0, Hello("1/0", "t", 9, generation=2), 1.0)
    assert said == [AgentReport(3, started=WorkerStarted(1, 0, 2, 0))] and known(agent) == (2, 40)
    agent, _ = scene(from_before=[AdoptedWorker(bounded(1, 0), "t", 1.0)])
    do(agent, start=bounded(2, 40))
    assert known(agent) == (1, 0), "nobody knows what the agent before told it"


def test_a_plain_program_is_bounded_at_once() -> None:
    agent, stage = scene()
    do(agent, start=start())
    do(agent, start=replace(start(generation=2), memory_bytes=40))
    assert [o.memory_bytes for o in stage.limits] == [40] and known(agent) == (2, 40)


def test_only_the_secret_opens() -> None:
    agent, stage = scene()
    do(agent, start=start())
    assert agent.admits(1, 0, "secret")
    assert not agent.admits(1, 0, "wrong") and not agent.admits(1, 1, "secret")
    stage.end(1, 0, 0)
    agent.tick(1.0)
    assert not agent.admits(1, 0, "secret"), "the dead do not call"


def test_words_of_workers_that_nobody_knows_are_dropped() -> None:
    agent, _ = scene()
    assert agent.receive(1, 0, Ready(1), 0.0) == []


def test_a_new_agent_takes_over_what_it_finds() -> None:
    end = WorkerExit(2, 1, 4)
    found = [
        AdoptedWorker(start(), "t", 1.0, None, (Entered(1, 0, 0),)),
        AdoptedWorker(start(2, 1), "u", 1.0, end),
    ]
    agent, stage = scene(from_before=found)
    assert states(agent) == {(1, 0): None, (2, 1): 4}
    assert agent.inventory().workers[0].entered == 1
    assert agent.admits(1, 0, "t")
    assert [r.ended for r in agent.tick(0.0)] == [WorkerEnded(2, 1, 1, 4, asked=True)]
    assert do(agent, start=start(generation=0)) and stage.starts == []


def test_a_new_agent_without_a_fence_obeys_nothing_older_than_what_it_finds() -> None:
    agent, stage = scene(from_before=[AdoptedWorker(start(generation=5), "t", 1.0)])
    assert do(agent, start=start(worker=1, generation=4)) == [] and stage.starts == []
    assert do(agent, start=start(worker=1, generation=5))


ORDERS = st.one_of(
    st.builds(
        lambda w, g: {"start": start(worker=w, generation=g + w)},
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    st.builds(
        lambda w, s: {"end": EndWorker(1, w, s)}, st.integers(0, 3), st.sampled_from([0.0, 3.0])
    ),
    st.builds(lambda w: {"forget": Forget(1, w)}, st.integers(0, 3)),
    st.builds(
        lambda w, g: {"tell": NotifyWorkers(1, (w,), regroup=Regroup(g, (w,)))},
        st.integers(0, 3),
        st.integers(0, 4),
    ),
    st.just({"hail": InventoryRequest(0)}),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            ORDERS, st.integers(0, 2), st.integers(1, 3), st.booleans(), st.sampled_from(["", "x"])
        ),
        max_size=40,
    )
)
def test_nothing_is_ever_started_twice_or_by_the_past(
    story: list[tuple[dict[str, object], int, int, bool, str]],
) -> None:
    agent, stage = scene(stubborn=True)
    now, newest, generation = 0.0, -1, -1
    ended: dict[tuple[int, int], int] = {}
    for order, epoch, times, dies, stage.waits_for in story:
        for _ in range(times):
            before = len(stage.starts)
            reports = do(agent, epoch, now, **order)
            newest = max(newest, epoch)
            if epoch < newest:
                assert reports == [] and len(stage.starts) == before
            elif isinstance(begun := order.get("start"), StartWorker):
                if begun.generation < generation:
                    assert len(stage.starts) == before
                generation = max(generation, begun.generation)
            elif isinstance(told := order.get("tell"), NotifyWorkers) and told.regroup:
                generation = max(generation, told.regroup.generation)
            for report in [*reports, *agent.tick(now)]:
                if report.ended is not None:
                    key = report.ended.job, report.ended.worker
                    assert ended.setdefault(key, report.ended.exit_code) == report.ended.exit_code
            now += 0.7
        if dies and stage.alive:
            stage.end(*next(iter(stage.alive)), 0)
    assert len(stage.starts) == len(set(stage.starts)), "no number is started twice"
    alive = {key for key, code in states(agent).items() if code is None}
    agent.tick(now)
    assert set(stage.alive) <= alive, "no worker runs that the agent does not know"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 40)))
def test_runs_of_numbers_hold_what_was_put_in(numbers: list[int]) -> None:
    runs: list[list[int]] = []
    for number in numbers:
        add(runs, number)
    assert [n for n in range(50) if contains(runs, n)] == sorted(set(numbers))
    assert all(a[1] + 1 < b[0] for a, b in pairwise(runs)), "as few as can be"


def test_a_fence_comes_back_from_what_it_was() -> None:
    fence = Fence()
    fence.accept_epoch(7)
    fence.accept_generation(1, 5)
    for worker in (0, 1, 2, 4):
        fence.use_up(1, worker)
    again = Fence(fence.epoch, fence.jobs())
    assert not again.accept_epoch(6) and not again.accept_generation(1, 4)
    assert [w for w in range(6) if again.is_used_up(1, w)] == [0, 1, 2, 4]


def test_a_fence_stays_small_and_forgets_the_oldest_idle_jobs_first() -> None:
    fence = Fence()
    for job in range(3 * JOBS_KEPT):
        fence.accept_generation(job, 1)
        fence.use_up(job, 0)
        if job:
            fence.retire(job)
        fence.trim([0])
    assert len(fence.jobs()) <= JOBS_KEPT + 1
    assert fence.is_used_up(0, 0) and fence.is_used_up(3 * JOBS_KEPT - 1, 0)
    assert not fence.is_used_up(1, 0)
