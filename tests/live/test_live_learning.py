"""The whole controller over emulated nodes in virtual time, with a belief that is wrong at first.

What the nodes really do (`truth`) is not what the policy believes; workers report what happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

import dovetail.policies
from curved_physics import CurvedSpeed, CurvedStructure, with_speed
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.messages import Ended, Fact, Started, Stopped
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.forecast.forecasts import Declared
from dovetail.live.controller.worker_loss import CROWDED
from dovetail.live.controller.world import LiveWorld
from dovetail.live.edges.protocols import Edges, JournalEntry, Request, StoredState
from dovetail.live.edges.virtual_time import Timeline, VirtualClock, VirtualInbox, VirtualPost
from dovetail.live.emulation.synthetic import SwitchCosts, synthetic_spec
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.measuring.meter import ReportMeter
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.linear import LinearSpeed, LinearStructure, linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker
from dovetail.wire.spec import JobSpec
from emulated_faults import FaultyNodes
from plain_meter import PlainMeter

assert dovetail.policies

ENDS_S = 2000.0


def empty() -> JobTable:
    return JobTable.build([], np.empty(0), np.empty(0, np.int64))


def spec(name: str, duration_s: float, gpus: int = 1, most: int = 1, **more: object) -> JobSpec:
    return JobSpec(
        name, (), ".", gpus=gpus, min_gpus=1, max_gpus=most, duration_s=duration_s, paced=True,
        model=name.partition("-")[0], **more,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class Kept:
    """A journal in memory, and an archive of nothing."""

    facts: list[Fact] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)

    def write(self, entry: JournalEntry) -> None:
        self.facts += entry.facts
        self.details += [record.detail for record in entry.records]
        self.meta.update(entry.meta)

    def find(self, job: int) -> StoredJob | None:
        return None


def launch_of(number: int, spec: JobSpec) -> StartWorker:
    command = synthetic_spec(spec).command()
    return StartWorker(
        number, -1, -1, -1, command, f"jobs/{number}", "output.log", ".", trains=True
    )


@dataclass
class Play:
    """A cluster that submits jobs at given times and runs them to their end."""

    policy: str
    cluster: Cluster
    truth: Physics
    nodes_table: JobTable
    xi: float = 1.0
    learns: bool = True
    said: str = ""
    lacking: tuple[tuple[float, int], ...] = ()
    """When the newest worker of which job finds no room on its GPU."""
    ends: str = "by itself"

    def run(self, *submitted: tuple[float, JobSpec]) -> Kept:
        """Returns all facts, jobs by number from 1."""
        line, kept, jobs = Timeline(), Kept(), empty()
        lengths = {str(i): one.duration_s for i, (_, one) in enumerate(submitted, 1)}
        learning = Learning(linear_physics(jobs, Injected(self.xi)), jobs, self.said, paced=True)
        state = ClusterState(
            jobs,
            self.cluster,
            parse_policy(self.policy),
            physics=learning.physics,
            forecast=Declared(jobs, lambda job: lengths.get(job, 0.0)),
            placing=Placing.parse("prefer"),
        )
        inbox = VirtualInbox(line)
        post = VirtualPost(line, self._nodes(line, inbox))
        world = LiveWorld(
            Edges(VirtualClock(line), inbox, post, kept, kept),
            state,
            parse_policy(self.policy),
            recovered=StoredState(1),
            launches=launch_of,
            meter=ReportMeter(learning) if self.learns else PlainMeter(),
        )
        for number, (t, one) in enumerate(submitted, 1):
            line.at(t, lambda n=number, t=t, s=one: inbox.put(StoredJob.submitted(n, s, t)))
        line.at(ENDS_S, lambda: inbox.put(Request(1, "down", argument="leave")))
        run(world, parse_policy(self.policy))
        assert len([f for f in kept.facts if isinstance(f, Ended)]) == len(submitted)
        return kept

    def _nodes(self, line: Timeline, inbox: VirtualInbox):  # type: ignore[no-untyped-def]
        group = self.cluster.groups[0]
        nodes = FaultyNodes(
            group.nodes, group.gpus_per_node, jobs=self.nodes_table, physics=self.truth,
            costs=SwitchCosts(), alive_s=1.0,
        )  # fmt: skip
        armed = [float("inf")]

        def take(reports: Sequence[AgentReport]) -> None:
            for report in reports:
                line.after(0.0005, lambda r=report: inbox.put(r))
            due = nodes.next_due()
            if due < float("inf") and due != armed[0]:
                armed[0] = due
                line.at(due, lambda d=due: tick(d))

        def tick(due: float) -> None:
            if armed[0] == due:
                armed[0] = float("inf")
                take(nodes.tick(line.now))

        def handle(node: int, order: AgentOrder) -> None:
            take(nodes.handle(node, order, line.now))

        def lack(job: int) -> None:
            number = max(w for _, j, w in nodes.alive if j == job)
            said = nodes.kill(job, number, line.now)
            take([_without_room(report, self.ends) for report in said])

        for t, job in self.lacking:
            line.at(t, lambda job=job: lack(job))  # type: ignore[misc]

        take(())
        return handle


def _without_room(report: AgentReport, how: str) -> AgentReport:
    """Lets a worker that was killed have ended for want of memory: by itself, or by the kernel."""
    said = {"exit_code": 5} if how == "by itself" else {"why": "out of memory"}
    return replace(report, ended=report.ended and replace(report.ended, **said))  # type: ignore[arg-type]


class NamedCurves(CurvedSpeed):
    """The truth of models by name: throughput by GPUs."""

    CURVES: ClassVar = {"poor": (1.0, 1.1, 1.12, 1.13), "good": (1.0, 1.9, 2.8, 3.6)}

    def relative(self, job: int, gpus: int) -> float:
        curve = self.CURVES[self.jobs.model[job]]
        return curve[gpus - 1] / curve[int(self.jobs.gpus[job]) - 1]


def curves(jobs: JobTable) -> Physics:
    structure = CurvedStructure(jobs)
    return with_speed(jobs, NamedCurves(structure, []), structure)


class SlowNetwork(LinearSpeed):
    """The truth of a cluster whose network makes jobs on several nodes half as fast."""

    def whole(self, job: int, placement: Placement, done_s: float = 0.0) -> float:
        return super().whole(job, placement, done_s) / min(2, placement.nodes)


def slow_network(jobs: JobTable) -> Physics:
    physics = linear_physics(jobs)
    assert isinstance(physics.structure, LinearStructure)
    return replace(physics, speed=SlowNetwork(physics.structure))


def test_a_job_over_nodes_teaches_what_the_network_costs_and_not_what_gpus_do() -> None:
    table = empty()
    play = Play("fifo", Cluster.uniform(2, 2), slow_network(table), table)
    kept = play.run(
        (0.0, spec("one", 20.0)),
        (0.0, spec("two", 320.0)),
        (0.0, spec("three", 320.0)),
        (30.0, spec("net-1", 100.0, gpus=2, most=2)),
        (340.0, spec("net-2", 100.0, gpus=2, most=2)),
    )
    (apart,) = [f.placement for f in kept.facts if isinstance(f, Started) and f.job == 4]
    (together,) = [f.placement for f in kept.facts if isinstance(f, Started) and f.job == 5]
    assert (apart.nodes, together.nodes) == (2, 1)
    assert ends(kept)[4] == pytest.approx(230.0, abs=1.0)
    jobs = empty()
    learned = Learning(linear_physics(jobs), jobs, kept.meta["measured"], paced=True)
    jobs.append([synthetic_spec(spec("net-3", 100.0, gpus=2, most=2)).row(9, 0.0)])
    learned.physics.structure.admit(jobs)
    believed = [learned.physics.rate(0, placement, ()) for placement in (together, apart)]
    assert believed == pytest.approx([1.0, 0.5], rel=0.01)


def shares(kept: Kept, job: int) -> list[int]:
    return [f.placement.gpus for f in kept.facts if isinstance(f, Started) and f.job == job]


def pairs(kept: Kept, from_s: float) -> list[tuple[int, ...]]:
    """Returns into how many steps the batches of jobs were cut that were together on a GPU."""
    found, there = [], {}
    for fact in kept.facts:
        if isinstance(fact, Started):
            there[fact.job] = fact.placement.accumulation_steps
        elif isinstance(fact, Stopped | Ended):
            there.pop(fact.job, None)
        if len(there) > 1 and fact.t > from_s:
            found.append(tuple(there.values()))
    return found


def ends(kept: Kept) -> dict[int, float]:
    return {f.job: f.t for f in kept.facts if isinstance(f, Ended)}


@pytest.mark.parametrize("policy", ["afs-l", "afs-p", "optimus"])
def test_a_job_is_grown_first_and_shrunk_when_its_reports_say_that_it_gains_little(
    policy: str,
) -> None:
    jobs = (0.0, spec("poor", 300.0, most=4)), (0.0, spec("good", 300.0, most=4))
    found = {}
    for learns in (True, False):
        table = empty()
        play = Play(policy, Cluster.uniform(1, 4), curves(table), table, learns=learns)
        found[learns] = play.run(*jobs)
    assert max(shares(found[True], 1)[:2]) > 1, "a linear guess gives it more than one"
    assert 3 in shares(found[True], 2)
    assert ends(found[True])[2] < 130 < ends(found[False])[2]


def test_a_pair_that_does_harm_is_parted_and_both_finish() -> None:
    table = empty()
    play = Play(
        "sjf-bsbf", Cluster.uniform(1, 1), linear_physics(table, Injected(2.0)), table, xi=1.05
    )
    kept = play.run(
        (0.0, spec("a", 100.0, shareable=True)), (10.0, spec("b", 80.0, shareable=True))
    )
    (stop,) = [f for f in kept.facts if isinstance(f, Stopped)]
    assert (stop.job, stop.why) == (2, "pairing undone")
    assert stop.t == pytest.approx(14.0, abs=0.01), "three reports beside the other"
    assert stop.done_s == 2.0
    assert "pairing undone: beside job 1 both lost more than waiting costs" in kept.details
    assert kept.details[-1] == "", "it is not said any more when the job runs again"
    again = [f.t for f in kept.facts if isinstance(f, Started) and f.job == 2]
    assert again == [pytest.approx(10.0, abs=0.01), pytest.approx(102.0, abs=0.01)]
    assert ends(kept) == {1: pytest.approx(102.0, abs=0.01), 2: pytest.approx(180.0, abs=0.01)}


def test_the_same_two_are_not_paired_again_not_even_after_a_restart() -> None:
    table = empty()
    pair = (0.0, spec("a", 100.0, shareable=True)), (10.0, spec("b", 80.0, shareable=True))
    truth = linear_physics(table, Injected(2.0))
    play = Play("sjf-bsbf", Cluster.uniform(1, 1), truth, table, xi=1.05)
    said = play.run(*pair).meta["measured"]
    fresh = empty()
    truth = linear_physics(fresh, Injected(2.0))
    kept = Play("sjf-bsbf", Cluster.uniform(1, 1), truth, fresh, xi=1.05, said=said).run(*pair)
    assert not [f for f in kept.facts if isinstance(f, Stopped)]
    assert ends(kept) == {1: pytest.approx(100.0, abs=0.01), 2: pytest.approx(180.0, abs=0.01)}


def test_a_pair_that_does_as_was_believed_stays() -> None:
    table = empty()
    truth = linear_physics(table, Injected(1.1))
    kept = Play("sjf-bsbf", Cluster.uniform(1, 1), truth, table, xi=1.05).run(
        (0.0, spec("a", 100.0, shareable=True)), (10.0, spec("b", 80.0, shareable=True))
    )
    assert not [f for f in kept.facts if isinstance(f, Stopped)]
    assert ends(kept)[2] == pytest.approx(98.0, abs=0.1)


def test_whoever_shares_knowingly_is_left_alone() -> None:
    table = empty()
    truth = linear_physics(table, Injected(2.0))
    kept = Play("sjf-ffs", Cluster.uniform(1, 1), truth, table, xi=1.05).run(
        (0.0, spec("a", 100.0, shareable=True)), (10.0, spec("b", 80.0, shareable=True))
    )
    stops = [f for f in kept.facts if isinstance(f, Stopped)]
    assert len(stops) == 1, "it shares first-fit, whatever a pair costs, and is told so once"


def sharing(name: str, duration_s: float, **more: object) -> JobSpec:
    return spec(name, duration_s, shareable=True, trains=True, **more)


@pytest.mark.parametrize("policy", ["sjf-bsbf", "sjf-ffs", "gandiva"])
@pytest.mark.parametrize("short", [1, 2])
def test_who_ran_out_of_memory_beside_another_is_not_put_there_again(
    policy: str, short: int
) -> None:
    table = empty()
    truth = linear_physics(table, Injected(1.1))
    play = Play(policy, Cluster.uniform(1, 1), truth, table, xi=1.05, lacking=((20.0, short),))
    kept = play.run((0.0, sharing("a", 100.0, retries=0)), (10.0, sharing("b", 80.0, retries=0)))
    together = [f.t for f in kept.facts if isinstance(f, Started) and f.placement.gpu_ids]
    assert [t for t in together if 10.0 <= t < 20.0], "at first they are paired"
    (stop,) = [f for f in kept.facts if isinstance(f, Stopped) and f.why == CROWDED]
    assert stop.job == short and stop.t == pytest.approx(20.0, abs=0.01)
    assert len(ends(kept)) == 2 and not [pair for pair in pairs(kept, 20.1) if max(pair) == 1]
    again = next(f for f in kept.facts if isinstance(f, Started) and f.t > 20.0 and f.job == short)
    if policy == "gandiva":
        said = f"out of memory beside another: job {3 - short} (worker"
        assert any(detail.startswith(said) for detail in kept.details)
    else:
        assert again.t == stop.t and again.placement.accumulation_steps == 2, "a smaller sub-batch"
    assert kept.meta["measured"].count('"least"') == 2, "of neither it was known what it holds"


def test_what_did_not_fit_is_known_after_a_restart() -> None:
    table = empty()
    truth = linear_physics(table, Injected(1.1))
    pair = (0.0, sharing("a", 100.0)), (10.0, sharing("b", 80.0))
    play = Play("sjf-ffs", Cluster.uniform(1, 1), truth, table, xi=1.05, lacking=((20.0, 2),))
    said = play.run(*pair).meta["measured"]
    fresh = empty()
    truth = linear_physics(fresh, Injected(1.1))
    again = Play("sjf-ffs", Cluster.uniform(1, 1), truth, fresh, xi=1.05, said=said)
    kept = again.run(*pair)
    assert not [f for f in kept.facts if isinstance(f, Stopped)]
    (started,) = [f for f in kept.facts if isinstance(f, Started) and f.job == 2]
    assert started.t == 10.0 and started.placement.accumulation_steps == 2


@pytest.mark.parametrize("ends_", ["by itself", "by the kernel"])
def test_of_several_workers_one_that_finds_no_room_takes_the_job_away_at_no_cost(
    ends_: str,
) -> None:
    table = empty()
    truth = linear_physics(table, Injected(1.1))
    play = Play(
        "gandiva", Cluster.uniform(1, 2), truth, table, xi=1.05, lacking=((20.0, 1),), ends=ends_
    )
    kept = play.run(
        (0.0, sharing("a", 50.0, gpus=2, most=2, retries=0)),
        (10.0, sharing("b", 50.0, gpus=2, most=2)),
    )
    assert [f.job for f in kept.facts if isinstance(f, Stopped) and f.why == CROWDED] == [1]
    assert pairs(kept, 10.0) and not pairs(kept, 20.1)
    assert len(ends(kept)) == 2


def test_a_job_that_must_not_run_twice_ends_when_it_finds_no_room_beside_another() -> None:
    table = empty()
    truth = linear_physics(table, Injected(1.1))
    play = Play("sjf-ffs", Cluster.uniform(1, 1), truth, table, xi=1.05, lacking=((20.0, 2),))
    kept = play.run((0.0, sharing("a", 100.0)), (10.0, sharing("b", 80.0, requeue=False)))
    assert ends(kept)[2] == pytest.approx(20.0, abs=0.01)
