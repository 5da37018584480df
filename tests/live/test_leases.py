"""Lost is not dead: nodes with leases in seeded partitions, and no job ever has two copies.

Each story is played by the harness of `test_nothing_lost.py`, whose observer sees every process.
With leases it is strict: no process of a plain program lives beside one of another start of it, and
no two groups of an elastic job train at once, also where nobody can end one of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.mutations import MUTATIONS
from harness.partitions import parted
from harness.stage import first_failure, play
from harness.story import GONE_LATE, Fault, Story, Submission
from live_stage import RULES, Stage

from dovetail.core.messages import NodeChanged, Started, Stopped
from dovetail.live.controller.node_loss import NodeLoss
from dovetail.live.edges.protocols import NodeGone
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember
from dovetail.live.jobs.status_snapshot import NodeStatus
from dovetail.live.node.lease import Lease
from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang import make_gang
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import Renew, StartWorker, WorkerEnded

BLOCK = 60
FOUND_IN = {
    "lost is dead": 1,
    "an answer counts from its arrival": 46,
    "no margin": 1,
    "any inventory counts": 164,
    "no lineage": 51,
    "a job trains on without anybody": 4,
    "absence proves an end": 149,
    "a node is missed once": 24,
    "a number starts again": 2,
    "a new agent is as the one before": 2396,
    "orders to a lost node count": 23,
    "a report counts before the inventory": 100,
}
"""Of each mistake a story that finds it."""
SEARCHED = 400
"""Where that one does not any more, another of so many must."""
ONCE_BROKEN = (155, 299, 491, 515, 719, 827, 851, 2396, 2441)
"""Stories that made two copies. In the first five an order that was late started one by the lease
of an agent before; in 827 the report of a worker that trained was late, and another began as if
there was none; in 851 and 2441 the word that a node was gone was older than all that ran there; in
2396 a machine was back within seconds and obeyed an order to start what had ended there before."""


def test_no_partition_makes_two_copies() -> None:
    failure = first_failure(parted(seed) for seed in range(BLOCK))
    assert failure is None, failure.told()


def test_no_story_that_once_made_two_copies_does_so_again() -> None:
    failure = first_failure(map(parted, ONCE_BROKEN))
    assert failure is None, failure.told()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1, 51))
def test_no_partition_of_many_more_makes_two_copies(block: int) -> None:
    failure = first_failure(parted(seed) for seed in range(block * BLOCK, (block + 1) * BLOCK))
    assert failure is None, failure.told()


LEASED = replace(
    RULES, leases_s=(60.0, 60.0, 60.0), lease_grace_s=5.0, lease_margin_s=5.0, clock_drift=0.0
)
LOST_S = 70.0
"""After so long without a word a node of these rules is lost."""


def cut(nodes: int = 2, *, stands: bool = False, cut_s: float = 5.0) -> Stage:
    """A cluster of which node 0, with the only job, is cut off."""
    stage = Stage(nodes=nodes, gpus=1, rules=LEASED, stands=stands)
    stage.submit(1.0, duration_s=500.0)
    stage.at(cut_s, lambda: stage.deaf.add(0))
    return stage


def starts_s(stage: Stage) -> list[float]:
    return [f.t for f in stage.facts if isinstance(f, Started)]


def keeps_its_place(stage: Stage) -> bool:
    record = stage.record(1)
    return record.state is State.RUNNING and record.nodes == (0,) and len(starts_s(stage)) == 1


def test_a_job_keeps_its_place_on_a_node_that_is_cut_off_until_the_lease_is_over() -> None:
    stage = cut()
    heard: list[NodeStatus] = []

    def look() -> None:
        assert stage.world is not None and stage.world.status is not None
        heard.append(stage.world.status.nodes[0])

    stage.at(30.0, look)
    stage.play(40.0)
    assert keeps_its_place(stage)
    assert heard[0].state == "down" and heard[0].lost_s == heard[0].heard_s + LOST_S
    stage = cut()
    stage.play(100.0)
    again_s = starts_s(stage)[1]
    assert again_s == pytest.approx(4.0 + LOST_S, abs=1.1)
    assert [node for _, node, _ in stage.starts(1)] == [0, 1]


def test_a_job_on_a_node_without_a_lease_starts_anew_at_once() -> None:
    stage = Stage(nodes=2, gpus=1, rules=replace(LEASED, leases_s=(0.0, 60.0)))
    stage.submit(1.0, duration_s=500.0)
    stage.at(5.0, lambda: stage.deaf.add(0))
    stage.play(40.0)
    assert starts_s(stage)[1] < 20.0 and stage.record(1).nodes == (1,)


def test_the_inventory_of_a_node_that_is_back_shows_that_its_job_goes_on() -> None:
    stage = cut()
    stage.at(40.0, lambda: stage.deaf.discard(0))
    stage.play(60.0)
    assert keeps_its_place(stage) and not [o for _, _, o in stage.orders if o.end is not None]
    assert [f.state for f in stage.facts if isinstance(f, NodeChanged)] == ["draining", "up"]
    stage.play(600.0)
    assert stage.record(1).state is State.COMPLETED and len(starts_s(stage)) == 1


@pytest.mark.parametrize("leases_s", [LEASED.leases_s, ()])
def test_a_node_that_is_back_is_missed_when_it_is_silent_again(leases_s: tuple[float, ...]) -> None:
    stage = Stage(nodes=2, gpus=1, rules=replace(LEASED, leases_s=leases_s))
    for cut_s, back_s in ((5.0, 25.0), (40.0, 60.0), (75.0, 95.0)):
        stage.at(cut_s, lambda: stage.deaf.add(0))
        stage.at(back_s, lambda: stage.deaf.discard(0))
    stage.play(100.0)
    changes = [(f.t, f.state) for f in stage.facts if isinstance(f, NodeChanged)]
    assert [state for _, state in changes] == ["down", "up"] * 3
    assert [t for t, _ in changes[::2]] == pytest.approx([14.0, 49.0, 84.0], abs=1.1)


def test_a_node_that_is_gone_is_not_awaited() -> None:
    stage = cut()
    stage.at(20.0, lambda: stage.inbox and stage.inbox.put(NodeGone(0, stage.line.now)))
    stage.play(40.0)
    assert starts_s(stage)[1] == pytest.approx(20.0, abs=1.5)


def test_a_node_that_is_gone_is_silent_for_a_moment_first() -> None:
    stage = cut(cut_s=19.9)
    stage.at(20.0, lambda: stage.inbox and stage.inbox.put(NodeGone(0, stage.line.now)))
    stage.play(40.0)
    down = next(f.t for f in stage.facts if isinstance(f, NodeChanged))
    assert down == pytest.approx(20.0 + LEASED.resend_s, abs=0.1)
    assert starts_s(stage)[1] == pytest.approx(21.0 + LEASED.resend_s, abs=1.5)


def test_a_node_that_is_heard_after_it_was_gone_is_back_already() -> None:
    """Who started it is asked seldom: until it says so, the node may have new workers."""
    stage = cut(cut_s=1000.0)
    stage.at(20.0, lambda: stage.inbox and stage.inbox.put(NodeGone(0, stage.line.now)))
    stage.play(100.0)
    assert not [f for f in stage.facts if isinstance(f, NodeChanged)] and len(starts_s(stage)) == 1
    stage = cut(cut_s=25.0)
    stage.at(20.0, lambda: stage.inbox and stage.inbox.put(NodeGone(0, stage.line.now)))
    stage.play(60.0)
    assert keeps_its_place(stage), "that word was of another silence"


@pytest.mark.parametrize("comes_s", [21.0, 26.0, 40.0])
def test_a_word_that_is_older_than_the_silence_ends_no_lease(comes_s: float) -> None:
    """The node was dead, and is back: whoever started it takes a while to answer."""
    stage = cut(cut_s=20.0)
    stage.at(comes_s, lambda: stage.inbox and stage.inbox.put(NodeGone(0, 15.0)))
    stage.play(60.0)
    assert keeps_its_place(stage)


def test_time_without_a_controller_is_not_counted() -> None:
    """Down since 14 s and lost at 74; the controller is away from 30 to 1000 s."""
    stage = cut(stands=True)
    stage.play(30.0)
    stage.line.now = 1000.0
    stage.play(1020.0)
    assert keeps_its_place(stage)
    stage.play(1100.0)
    moment_s = next(t for t, node, o in stage.orders if o.start is not None and o.start.worker == 1)
    # Of its 70 s, 26 had passed; up to 5 s before each kill are not on record.
    assert 1000.0 + 44.0 - 0.1 <= moment_s <= 1000.0 + 44.0 + 12.0


def test_a_node_that_nobody_had_missed_is_counted_from_the_new_controller_s_start() -> None:
    """Cut off while no controller runs: its last answer may be as old as the kill, or younger."""
    stage = Stage(nodes=2, gpus=1, rules=LEASED, stands=True)
    stage.submit(1.0, duration_s=500.0)
    stage.play(30.0)
    stage.deaf.add(0)
    stage.line.now = 200.0
    stage.play(400.0)
    moment_s = next(t for t, node, o in stage.orders if o.start is not None and o.start.worker == 1)
    assert 200.0 + LOST_S <= moment_s <= 200.0 + LOST_S + 2.0


def test_a_cancelled_job_that_may_still_run_is_completing_until_its_node_is_lost() -> None:
    stage = cut()
    stage.ask(20.0, "cancel", 1)
    stage.ask(100.0, "requeue", 1)
    stage.play(40.0)
    assert stage.record(1).state is State.COMPLETING and stage.record(1).nodes == (0,)
    stage.play(115.0)
    assert {m.node for m in stage.record(1).members} == {1}
    assert len(starts_s(stage)) == 2 and starts_s(stage)[1] > LOST_S


def test_an_elastic_job_trains_on_without_a_node_and_leaves_a_stranded_worker() -> None:
    stage = Stage("afs-p:unit-s=1000", nodes=3, gpus=1, rules=LEASED)
    stage.submit(1.0, gpus=2, min_gpus=1, max_gpus=3, duration_s=300.0)
    stage.at(20.0, lambda: stage.deaf.add(1))
    stage.play(40.0)
    record = stage.record(1)
    assert {m.node for m in record.members} == {0, 2} and record.stranded == ((1, 0),)
    assert not [f for f in stage.facts if isinstance(f, Stopped)]


@pytest.mark.parametrize("mistake", FOUND_IN)
def test_the_stories_find_a_mistake_in_each_rule(
    mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTATIONS[mistake](monkeypatch)
    seeds = (FOUND_IN[mistake], *range(SEARCHED))
    assert any(play(parted(seed)).wrong for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", sorted(MUTATIONS.keys() - FOUND_IN.keys()))
def test_they_find_others_after_a_while(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[mistake](monkeypatch)
    assert any(play(parted(seed)).wrong for seed in range(SEARCHED))


def one_way(node: int) -> Story:
    """A plain program on the node that is heard no more, but hears."""
    job = Submission(0.0, "plain", 1, 1, 1, 200.0)
    fault = Fault(20.0, "node silent", 200.0, node=node)
    return Story(1, "fifo", (job,), faults=(fault,), nodes=3, lease_s=30.0)


def test_the_checker_finds_two_copies_where_an_answer_counts_from_its_arrival(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def renew(lease: Lease, order: Renew, incarnation: str, now: float) -> bool:
        lease.until_s, lease.length_s = now + order.lease_s, order.lease_s
        lease.grace_s, lease._renewed_for = order.grace_s, incarnation
        lease.store()
        return True

    assert not any(play(one_way(node)).wrong for node in range(3))
    monkeypatch.setattr(Lease, "renew", renew)
    wrong = [text for node in range(3) for text in play(one_way(node)).wrong]
    assert any("starts, and" in text for text in wrong)


def back_and_cut_off(node: int) -> Story:
    """A node that died and is back with a new job; it is cut off as its death is told at last."""
    job = Submission(44.0, "plain", 1, 1, 1, 200.0)
    death = Fault(30.0, GONE_LATE, 3.0, node=node, pick=21)
    cut_off = Fault(49.0, "node cut off", 15.0, node=node)
    return Story(1, "fifo", (job,), faults=(death, cut_off), nodes=3, lease_s=30.0)


def test_the_checker_finds_two_copies_where_an_old_word_of_a_death_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not any(play(back_and_cut_off(node)).wrong for node in range(3))
    take_gone = NodeLoss.take_gone

    def take(loss: NodeLoss, node: int, asked_s: float) -> None:
        take_gone(loss, node, loss.tables.now)

    monkeypatch.setattr(NodeLoss, "take_gone", take)
    wrong = [text for node in range(3) for text in play(back_and_cut_off(node)).wrong]
    assert any("starts, and" in text for text in wrong)


def test_an_elastic_job_trains_on_where_node_and_controller_are_lost_at_once() -> None:
    """The next controller never hears the node, and knows from the others that all were there."""
    job = Submission(0.0, "elastic", 3, 1, 3, 60.0)
    for node in range(3):
        away = Fault(20.0, "controller killed", 3.0)
        apart = Fault(19.9, "node apart", 300.0, node=node)
        story = Story(1, "afs-p:unit-s=20", (job,), faults=(away, apart), nodes=3, lease_s=600.0)
        outcome = play(story)
        assert not outcome.wrong, outcome.wrong
        ended_s = next(float(line.split()[0]) for line in outcome.tale if "COMPLETED" in line)
        assert ended_s < 200.0, "it does not wait for the lease of 600 s"


# Who may make a step alone.


def elastic(
    *generations: tuple[int, ...], entered: dict[int, int], rules: Rules = LEASED
) -> ElasticGang:
    """A gang whose worker N is on node N, after orders for these generations, from 1 on."""
    launch = StartWorker(1, -1, -1, -1, ("true",), "/jobs/1", "out", "/", trains=True)
    gang = make_gang(launch, rules)
    assert isinstance(gang, ElasticGang)
    wanted = Desired(tuple(GangMember(n, n, 0) for n in sorted(entered)))
    gang.want(wanted, 0.0)
    gang.roster.start_workers(wanted, wanted.numbers, 0.0)
    for members in generations:
        gang._new_generation(wanted.regroup(0, members), 0.0)
    for number, generation in entered.items():
        gang.roster.workers[number].entered = generation
    return gang


def test_a_worker_that_trains_with_others_makes_no_step_without_them() -> None:
    assert elastic((0, 1), entered={0: 1, 1: 1}).can_do_without(0)


def test_a_worker_that_trained_alone_may_go_on_while_another_only_joins() -> None:
    assert not elastic((0,), (0, 1), entered={0: 1, 1: -1}).can_do_without(0)
    assert not elastic((0,), (0, 1), entered={0: 1, 1: 2}).can_do_without(0)
    assert elastic((0,), (0, 1), entered={0: 2, 1: 2}).can_do_without(0)


def test_a_worker_may_enter_alone_what_it_was_ordered_to_before_the_newest_generation() -> None:
    """When the generation of both breaks, it enters the oldest that it has joined."""
    assert not elastic((0, 1), (0,), (0, 1), entered={0: 1, 1: 1}).can_do_without(0)
    assert not elastic((0, 1), (0,), (1,), entered={0: 1, 1: 3}).can_do_without(0)
    assert elastic((0, 1), (0, 1), (1,), entered={0: 1, 1: 3}).can_do_without(0)


def test_workers_on_two_lost_nodes_may_make_a_step_together() -> None:
    gang = elastic((0, 1, 2), (0, 1), (0, 1, 2), entered={0: 1, 1: 1, 2: 1})
    assert gang.can_do_without(0)
    gang.lose(0)
    assert not gang.can_do_without(1)


def test_what_an_earlier_controller_ordered_may_be_of_one_worker() -> None:
    gang = elastic((0, 1), entered={0: 1, 1: 1})
    gang.roster.generation = 4
    gang._new_generation(gang.roster.wanted.regroup(0, (0, 1)), 0.0)  # type: ignore[union-attr]
    assert not gang.can_do_without(0)
    gang.roster.workers[0].entered = 5
    assert gang.can_do_without(0)


def stepped(gang: ElasticGang, now: float) -> tuple[int, ...]:
    """The members of the newest generation after one step of a gang."""
    gang.step(now, lambda *gpu: True, lambda node: now, lambda *gpu: True)
    assert gang.roster.target is not None
    return gang.roster.target.members


def test_two_newer_generations_of_a_broken_one_have_a_worker_in_common() -> None:
    """One survivor may train alone by an order, when the plan turns to the other two."""
    gang = elastic((0, 1, 2), entered={0: 1, 1: 1, 2: 1})
    wanted = gang.roster.wanted
    assert wanted is not None
    gang.want(replace(wanted, members=wanted.members[1:2]), 10.0)
    gang.ended(0, WorkerEnded(1, 0, 1, -9), 10.0)
    assert stepped(gang, 10.0) == (1,)
    gang.want(replace(wanted, members=wanted.members[2:]), 10.5)
    assert stepped(gang, 11.0) == (2, 1), "worker 1 comes along, or both would train"
    assert stepped(gang, 12.0) == (2, 1)
    for number in (1, 2):
        gang.enter(gang.roster.workers[number], gang.roster.generation)
    assert stepped(gang, 13.0) == (2,)


def test_a_generation_waits_for_the_end_of_a_worker_that_may_train_beside_it() -> None:
    gang = elastic((0, 1), (1,), entered={0: 1, 1: 1})
    wanted = gang.roster.wanted
    assert wanted is not None
    gang.want(replace(wanted, members=wanted.members[:1]), 10.0)
    gang.roster.workers[1].end_by(10.0, 0.0, "it was silent for 10 s")
    assert stepped(gang, 11.0) == (1,), "it waits"
    gang.ended(1, WorkerEnded(1, 1, 1, -9), 12.0)
    assert stepped(gang, 12.0) == (0,)


def unheard(ready: int) -> ElasticGang:
    """A gang of two that grew out of the first, of which only that is known that it is ready for a
    generation; the plan does without it now.
    """
    gang = elastic((0,), (0, 1), entered={0: -1, 1: -1})
    gang.roster.workers[0].ready = ready
    wanted = gang.roster.wanted
    assert wanted is not None
    gang.want(replace(wanted, members=wanted.members[1:]), 10.0)
    return gang


def test_a_worker_that_may_train_unheard_has_ended_before_another_begins() -> None:
    gang = unheard(ready=-1)
    assert stepped(gang, 10.0) == (0, 1), "it waits"
    gang.ended(0, WorkerEnded(1, 0, 1, -9), 12.0)
    assert stepped(gang, 12.0) == (1,)


def test_a_worker_that_is_ready_and_may_train_alone_comes_along() -> None:
    gang = unheard(ready=1)
    assert stepped(gang, 10.0) == (1, 0)
    gang.enter(gang.roster.workers[1], gang.roster.generation)
    gang.enter(gang.roster.workers[0], gang.roster.generation)
    assert stepped(gang, 12.0) == (1,)


def test_what_an_earlier_controller_ordered_may_be_of_any_survivor() -> None:
    gang = elastic((0, 1), entered={0: 1, 1: 1})
    wanted = gang.roster.wanted
    assert wanted is not None
    gang.roster.generation = 4
    gang.want(replace(wanted, members=wanted.members[:1]), 10.0)
    gang.detector.mark_dead(7)
    assert stepped(gang, 11.0) == (0, 1)


@pytest.mark.parametrize("leases_s", [(60.0, 60.0), ()])
def test_newcomers_read_no_checkpoint_while_one_that_is_killed_may_still_write(
    leases_s: tuple[float, ...],
) -> None:
    """The order to kill it may never come: its node hears nothing, and is heard."""
    gang = elastic((0,), entered={0: 1, 1: -1}, rules=replace(LEASED, leases_s=leases_s))
    gang.roster.workers[1].alive = True
    gang.roster.workers[0].end_by(10.0, 0.0, "it was silent for 10 s")

    def step(now: float) -> None:
        gang.step(now, lambda *gpu: True, lambda node: now, lambda *gpu: True)

    step(11.0)
    waits = gang.roster.generation == 1
    # On one machine the order arrives, and a process that cannot be killed is not waited for.
    assert waits == bool(leases_s)
    gang.ended(0, WorkerEnded(1, 0, 1, -9), 20.0)
    step(20.0)
    assert gang.roster.generation > 1
