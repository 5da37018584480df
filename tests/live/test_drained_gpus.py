"""One GPU out of service: what runs there finishes, nothing else is put there."""

import json
from dataclasses import replace
from random import Random

import pytest
from harness.replayed import replayed
from harness.stage import first_failure
from harness.story import Story, Verb, story
from live_stage import Stage

from dovetail.core.cluster import DOWN, DRAINING, Cluster, NodeGroup
from dovetail.core.messages import GpusChanged, Refused, Started, Stopped
from dovetail.live.jobs.drain_reason import DrainReason, argument_of
from dovetail.live.jobs.lifecycle import State


def drain(gpu: int, reason: str = "", by: str = "") -> str:
    return argument_of(DrainReason(gpu, reason=reason, by=by))


def gpus_of_starts(stage: Stage, since_s: float) -> set[tuple[int, int]]:
    """Returns the GPUs on which workers were ordered to start from a time on."""
    return {
        (node, gpu)
        for at_s, node, order in stage.orders
        if order.start is not None and not order.start.begun and at_s >= since_s
        for gpu in order.start.all_gpus
    }


def test_the_job_on_a_drained_gpu_finishes_and_no_other_gets_it() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=20.0)
    s.submit(1.0, duration_s=5.0)
    s.ask(3.0, "drain", node=0, argument=drain(0, "XID 48", "ann"))
    for _ in range(4):
        s.submit(4.0, duration_s=5.0)
    s.play(100.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert gpus_of_starts(s, 3.0) == {(0, 1)}
    said = [(round(f.t), f.gpus, f.staying) for f in s.facts if isinstance(f, GpusChanged)]
    assert said == [(3, (), (1,)), (21, ((0, 0, DOWN),), ())]


def test_a_gpu_that_is_given_back_is_used_again() -> None:
    s = Stage(nodes=1, gpus=2)
    s.ask(1.0, "drain", node=0, argument=drain(1))
    s.submit(2.0, gpus=2, duration_s=5.0)
    s.play(20.0)
    assert s.states() == {1: State.PENDING}
    s.ask(21.0, "undrain", node=0, argument=drain(1))
    s.play(40.0)
    assert s.states() == {1: State.COMPLETED}


def test_a_drain_with_its_reason_survives_the_controller() -> None:
    s = Stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=40.0)
    s.ask(2.0, "drain", node=0, argument=drain(0, "ECC", "ann"))
    s.ask(2.0, "drain", node=0, argument=drain(1, "fan", "bob"))
    s.play(10.0)
    s.submit(11.0, duration_s=5.0)
    s.play(80.0)
    assert s.states() == {1: State.COMPLETED, 2: State.PENDING}
    assert s.world is not None and s.world.status is not None
    (node,) = s.world.status.nodes
    assert [(n.gpu, n.reason, n.by, n.since_s) for n in node.drains] == [
        (0, "ECC", "ann", 2.0),
        (1, "fan", "bob", 2.0),
    ]
    assert node.drained_gpus == (0, 1) and s.world.status.free_gpus() == {0: 0}


def test_the_reason_of_a_node_is_kept_also_if_it_is_down() -> None:
    s = Stage(nodes=2, gpus=1)
    s.at(1.0, lambda: s.deaf.add(0))
    s.ask(30.0, "drain", node=0, argument=argument_of(DrainReason(reason="RMA", by="ann")))
    s.play(40.0)
    s.deaf.clear()
    s.play(80.0)
    assert s.world is not None and s.world.status is not None
    node = s.world.status.nodes[0]
    assert node.state == DRAINING and node.drains[0].text == "RMA (ann)"


def test_damaged_notes_are_left_out_and_the_drained_nodes_stay_drained(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = Stage(nodes=2, gpus=1)
    s.ask(1.0, "drain", node=0)
    s.play(5.0)
    s.store.keep({"drains": json.dumps([[0, "?"]])})
    s.play(10.0)
    assert s.world is not None and s.world.status is not None
    assert s.world.status.nodes[0].state == DRAINING
    assert "'drains' is damaged" in caplog.text


POLICIES = [
    *("fifo", "sjf", "srtf", "backfill", "max-min", "afs-p", "afs-l", "optimus", "pollux"),
    *("gandiva:slice=5", "muri-s:tick-s=5", "sjf-bsbf", "gavel", "antman", "tiresias", "lucid"),
    *("tenancy", "themis", "slurm"),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
)
def test_no_policy_puts_work_on_drained_gpus_or_moves_what_is_there(policy: str, seed: int) -> None:
    rng = Random(seed)
    s = Stage(policy, nodes=2, gpus=4, injected=1.3)
    for at_s in range(1, 15):
        gpus = rng.choice((1, 1, 2, 4))
        elastic = {"min_gpus": 1, "max_gpus": 4} if rng.random() < 0.5 else {}
        shared = {"shareable": rng.random() < 0.7}
        s.submit(at_s, gpus=gpus, duration_s=rng.uniform(5.0, 60.0), **elastic, **shared)
    drained = rng.sample([(node, gpu) for node in range(2) for gpu in range(4)], 3)
    for node, gpu in drained:
        s.ask(20.5, "drain", node=node, argument=drain(gpu))
    s.play(60.0)
    # A controller that is killed knows them afterwards.
    s.play(900.0)
    assert not gpus_of_starts(s, 21.0) & set(drained), "work was put on a drained GPU"
    assert not [f for f in s.facts if isinstance(f, Refused)]
    staying: set[int] = set()
    for fact in s.facts:
        if isinstance(fact, GpusChanged):
            staying = set(fact.staying)
        elif isinstance(fact, Started | Stopped):
            assert fact.job not in staying, f"{fact} while its GPU drains"
    for node, gpu in drained:
        s.ask(901.0, "undrain", node=node, argument=drain(gpu))
    s.play(2000.0)
    assert set(s.states().values()) == {State.COMPLETED}


def test_one_island_loses_the_gpu_that_is_drained() -> None:
    s = Stage("fifo:bypass=skip", nodes=1, gpus=4)
    s.cluster = Cluster((NodeGroup("all", 1, 4, gpus_per_island=2),))
    s.ask(1.0, "drain", node=0, argument=drain(3))
    for at_s in (2.0, 3.0):
        s.submit(at_s, gpus=2, duration_s=10.0, topology="island")
    s.submit(4.0, duration_s=10.0)
    s.play(60.0)
    assert {gpu for _, _, gpu in (*s.starts(1), *s.starts(2))} == {0, 1}
    assert {gpu for _, _, gpu in s.starts(3)} == {2}


def with_drained_gpus(seed: int) -> Story:
    """A story of faults in which users also drain single GPUs and take that back."""
    rng, tale = Random(f"GPUs {seed}"), story(seed)
    verbs = []
    for _ in range(rng.randint(1, 4)):
        verb, at_s = rng.choice(("drain", "drain", "undrain")), round(rng.uniform(0, 60), 2)
        place = {"node": rng.randrange(2), "argument": drain(rng.randrange(2), "test")}
        verbs.append(Verb(at_s, verb, twice=rng.random() < 0.3, **place))
    return replace(tale, verbs=(*tale.verbs, *verbs))


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 20))]
)
def test_no_story_with_drained_gpus_breaks_a_rule(block: int) -> None:
    failure = first_failure(with_drained_gpus(seed) for seed in range(block * 25, block * 25 + 25))
    assert failure is None, failure.told()


def test_stories_with_drained_gpus_are_replayed_without_an_unexplained_difference() -> None:
    found = [(seed, replayed(with_drained_gpus(seed)).unexplained[:1]) for seed in range(20)]
    assert [one for one in found if one[1]] == []
