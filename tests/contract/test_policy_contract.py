"""What every registered policy owes its users. A new policy gets all of this by existing."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import dovetail.policies  # registers the policies
from builders import Facts, Row, play, play_scene, policy_of, scene_of, tally_of, trace_of
from dovetail.control.loop import check_needs, run
from dovetail.control.world import World
from dovetail.core.cluster import Cluster, Link, NodeGroup, QueueSpec
from dovetail.core.errors import DovetailError, InputError
from dovetail.core.legality import violations
from dovetail.core.messages import Started
from dovetail.core.policy import Decision, Policy, name_of, parse_policy, registered, spell
from dovetail.core.view import Changes, View, show
from dovetail.sim.world import SimWorld
from dovetail.study.options import Options
from dovetail.study.run import simulate
from fingerprint import fingerprint

assert dovetail.policies
ROOT = Path(__file__).resolve().parents[2]
OWN = sorted(n for n, c in registered().items() if c.module.startswith("dovetail.policies."))
IDLE = ("no-op",)
VARIANTS = (
    "sjf-bsbf:priority=service,order-hosts=benefit",
    "sjf-ffs:priority=service",
    "fifo:bypass=skip",
    "sjf:bypass=strict",
    "srtf:bypass=strict",
    "tiresias:thresholds=20/60",
    "tiresias:thresholds=20/60,inside=list",
    "tiresias:thresholds=20,bypass=strict",
    "gittins:delta=20,samples-min=5",
    "gittins:delta=0,samples-min=5",
    "serverfilling-gittins:delta=20,samples-min=5",
    "sia:interval=7,growth=1",
    "sia:interval=7,p=0.5",
    "max-min:overflow=least-recent",
    "afs-l:estimates=overestimate,measure-s=3",
    "afs-p:unit-s=5,tie=random,seed=3",
    "afs-p:unit-s=5,estimates=overestimate,measure-s=3",
    "afs-s:unit-s=5",
    "afs-l:packing=defragment",
    "afs-p:packing=defragment,unit-s=5",
    "srtf-e:packing=defragment",
    "optimus:interval=7",
    "srtf-e:bypass=strict",
    "srsf-max:bypass=strict",
    "tiresias-max:thresholds=20/60",
    "themis:f=0,lease=9",
    "themis:f=0.5,lease=40,seed=3",
    "antman:share=0.3,seed=2,bypass=skip",
    "gandiva:slice=7",
    "gandiva-deadline:slice=11",
    "muri-s:tick-s=0,merge-order=class",
    "muri-l:tick-s=7,always-group=true,group-limit=2",
    "a-srpt:tau=2,comm-heavy=1,nonblocking-delay=true",
    "gandiva:slice=7,unequal=true",
    "gandiva-deadline:slice=11,unequal=true",
    "gimbal:inner=lucid:score-limit=4;unequal=true;load=0,goal=makespan,monitor=2",
    "gimbal:inner=gavel:unequal=true;round=20,goal=makespan,monitor=3",
    "gimbal:inner=gandiva-deadline:unequal=true;slice=11,goal=deadline,monitor=2",
    "gimbal:inner=sjf-bsbf,monitor=2,early-exit=false",
    "gimbal:inner=antman,liss=false,lgrr=true,monitor=2",
    "gavel:round=20,unequal=true",
    "gavel:round=7,objective=fairness,alike=0",
    "lucid:score-limit=4",
    "lucid:score-limit=4,unequal=true,load=0",
    "lucid:score-limit=4,unpack=0.9",
    "ticked:inner=tiresias:thresholds=20/60;inside=list,period-s=7",
    "dovetail:share=false",
    "dovetail:lengths=false",
    "dovetail:preempt=false",
    "dovetail:resize=false,order-power=0.5",
    "dovetail:preempt=false,resize=false",
    "tenancy:inner=dovetail,guard-s=25",
    "tenancy:inner=srtf,min-run-s=5,guard-s=30",
    "tenancy:inner=backfill,budget=1,guard-s=20",
    "tenancy:inner=afs-l,guard-s=25",
    "tenancy:inner=sjf-bsbf,guard-s=25",
)
EVERY = [*OWN, *VARIANTS]
SHORT = {"pollux": "pollux:population=8,generations=8"}  # a short search keeps the same rules
BUSY = [SHORT.get(name, name) for name in EVERY if name not in IDLE]
WORDS = ("strict", "prefer", "none"), ("best-fit", "first-fit", "most-free"), ("keep", "repack")
PLACINGS = [  # any two words together in the default run, any three under `make slow`
    pytest.param(f"{a},{b},{c}", marks=[pytest.mark.slow] if (i + j + k) % 2 else [])
    for (i, a), (j, b), (k, c) in product(*map(enumerate, WORDS))
]


def some_rows(n: int = 40, seed: int = 0) -> list[Row]:
    """Returns a small random trace with elastic jobs, limits, and ties in time."""
    draw = random.Random(seed)
    t = 0.0
    rows = []
    for _ in range(n):
        t += draw.choice([0.0, 0.0, 1.0, 2.5, 7.0])
        gpus = draw.choice([1, 1, 1, 2, 2, 3, 4, 6])
        elastic = draw.random() < 0.5
        rows.append(
            Row(
                gpus,
                draw.choice([1.0, 2.5, 8.0, 20.0, 20.0, 61.7]),
                submit_s=t,
                elastic=elastic,
                min_gpus=1 if elastic else gpus,
                max_gpus=gpus * 2 if elastic else gpus,
                time_limit_s=draw.choice([float("inf"), float("inf"), 70.0]),
                user=draw.choice("abc"),
                shareable=True,
            )
        )
    return rows


class Witness:
    """A world that asks every policy every question twice and looks for side effects."""

    def __init__(self, world: SimWorld, policy: Policy) -> None:
        self._world = world
        self._policy = policy
        self._memory = policy.initial
        self.decisions = 0
        self.stops = 0

    def advance(self, until: float) -> bool:
        return self._world.advance(until)

    def observe(self) -> View:
        view = self._world.observe()
        before = fingerprint(view, self._world.state)
        self._columns_agree(view)
        first = self._answer(view)
        assert fingerprint(view, self._world.state) == before, "deciding changed the view"
        assert self._answer(view) == first, "the same view got another decision"
        assert fingerprint(view, self._world.state) == before
        self.decisions += 1
        return view

    def _columns_agree(self, view: View) -> None:
        columns = view.progress.running()
        jobs = columns.jobs.tolist()
        assert sorted(jobs) == sorted(view.running)
        assert columns.gpus.tolist() == [view.running[j].gpus for j in jobs]
        if "length" in self._policy.knows:
            assert columns.left_s.tolist() == pytest.approx(view.progress.left_s(jobs))
        assert columns.attained_gpu_s.tolist() == pytest.approx(view.progress.attained_gpu_s(jobs))

    def _answer(self, view: View) -> tuple[object, ...]:
        decision = self._policy.decide(view, self._memory)
        changes = [] if decision.draft is None else decision.draft.changes()
        if decision.draft is not None:
            wrong = violations(view, changes, decision.draft.occupancy, self._policy.powers)
            assert wrong == [], f"illegal at {view.now}: {wrong}"
        view.plan.discard()
        return changes, decision.memory, decision.wake_at, decision.because

    def apply(self, draft: object) -> None:
        self._world.apply(draft)  # type: ignore[arg-type]

    def in_time(self, took_s: float) -> bool:
        return True

    def refuse(self, policy: Policy, why: object, cause: Exception | None = None) -> float:
        raise AssertionError(f"{name_of(policy)}: {why}") from cause

    def note(self, decision: Decision) -> None:
        self._memory = decision.memory
        self._world.note(decision)


@pytest.mark.parametrize("name", BUSY)
def test_it_is_a_pure_function_of_the_view_and_its_plans_are_legal(name: str) -> None:
    witnesses: list[Witness] = []

    def wrap(world: SimWorld) -> World:
        witnesses.append(Witness(world, policy))
        return witnesses[0]

    for placing in ("prefer,best-fit,keep", "strict,first-fit,repack"):
        policy = policy_of(name)
        witnesses.clear()
        scene = scene_of(trace_of(*some_rows()), "2x4", placing=placing, switching="restart:3")
        play_scene(scene, policy, wrap)
        assert witnesses[0].decisions > 20


@pytest.mark.parametrize("placing", PLACINGS)
@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_under_every_placement_rule(name: str, placing: str) -> None:
    story = play(some_rows(25, seed=3), name, "2x4", placing=placing)
    assert sorted(story.ended()) == list(range(25))


@pytest.mark.parametrize(
    "switching", ["none", "restart:30", "per-start:5", "per-resize:2", "per-start:1,per-resize:9"]
)
@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_whatever_switching_costs(name: str, switching: str) -> None:
    story = play(some_rows(25, seed=4), name, "1x3+1x6", switching=switching)
    assert sorted(story.ended()) == list(range(25))


@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_on_a_cluster_whose_nodes_come_and_go(name: str) -> None:
    draw = random.Random(5)
    capacity = []
    for i in range(30):
        state = draw.choice(["down", "draining", "up"])
        capacity.append((3.0 * i + draw.choice([0.0, 0.5]), [(draw.randrange(3), state)]))
    capacity.append((100.0, [(n, "up") for n in range(3)]))
    story = play(some_rows(25, seed=6), name, "3x3", capacity=capacity)
    assert sorted(story.ended()) == list(range(25))


@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_with_coalesced_events(name: str) -> None:
    story = play(some_rows(25, seed=7), name, "2x4", coalesce_s=5.0)
    assert sorted(story.ended()) == list(range(25))


@pytest.mark.parametrize("forecast", ["noisy:1", "limit", "predicted", "predicted:mean"])
@pytest.mark.parametrize("name", BUSY)
def test_every_job_ends_when_the_forecast_is_wrong(name: str, forecast: str) -> None:
    story = play(some_rows(25, seed=8), name, "2x4", forecast=forecast)
    assert sorted(story.ended()) == list(range(25))


ROTATES = ("max-min:overflow=least-recent", "tenancy:inner=srtf,min-run-s=5,guard-s=30")
"""Policies that say they rotate at every decision, however little has happened; and one that lets
a starving job go first, and asks its inner policy about all others a second later."""


@pytest.mark.parametrize("name", [name for name in BUSY if name not in ROTATES])
def test_deciding_again_when_nothing_changed_changes_nothing(name: str) -> None:
    policy = policy_of(name)
    scene = scene_of(trace_of(*some_rows(30, seed=9)), "2x4", placing="strict")
    world = SimWorld(scene, policy, Facts())
    memory, wake_at = policy.initial, float("inf")
    while world.advance(wake_at):
        decision = policy.decide(world.observe(), memory)
        memory, wake_at = decision.memory, decision.wake_at
        if decision.draft is not None:
            world.apply(decision.draft)
        world.note(decision)
        show(world.observe(), changes=Changes())
        again = policy.decide(world.observe(), decision.memory)
        changes = [] if again.draft is None else again.draft.changes()
        world.observe().plan.discard()
        if decision.order is not None:
            continue  # it says so: it learned, and ranks by what it learned from now on
        assert changes == [], f"at {world.observe().now}"


@pytest.mark.parametrize("name", BUSY)
def test_it_uses_only_the_powers_it_declares(name: str) -> None:
    policy = policy_of(name)
    story = play(some_rows(30, seed=10), policy, "2x4", switching="restart:2")
    stops = sum(len(story.stops(j)) for j in range(30))
    hows = {how for j in range(30) for _, how in story.starts(j)}
    if "preempt" not in policy.powers:
        assert stops == 0
    if "migrate" not in policy.powers:
        assert "move" not in hows
    if "resize" not in policy.powers:
        assert "resize" not in hows


@pytest.mark.parametrize("running", ["keep", "repack"])
@pytest.mark.parametrize("name", BUSY)
def test_it_leaves_jobs_alone_that_may_not_be_stopped(name: str, running: str) -> None:
    rows = [replace(r, preemptible=i % 3 != 0) for i, r in enumerate(some_rows(25, seed=11))]
    story = play(rows, name, "2x4", placing=running)
    fixed = [j for j, r in enumerate(rows) if not r.preemptible]
    assert [len(story.starts(j)) for j in fixed] == [1] * len(fixed)
    assert [story.stops(j) for j in fixed] == [[]] * len(fixed)


@pytest.mark.parametrize("name", BUSY)
def test_it_keeps_quotas(name: str) -> None:
    cluster = Cluster((NodeGroup("all", 2, 4),), queues=(QueueSpec("q", 3),))
    rows = [
        replace(r, queue="q" if r.gpus <= 3 and i % 2 else "")
        for i, r in enumerate(some_rows(25, seed=12))
    ]
    story = play(rows, name, cluster)
    held: dict[int, int] = {}
    for t, batch in ((b[0].t, b) for b in story.batches):
        for fact in batch:
            if type(fact).__name__ == "Started" and rows[fact.job].queue:  # type: ignore[union-attr]
                held[fact.job] = fact.placement.gpus  # type: ignore[union-attr]
            elif type(fact).__name__ in ("Stopped", "Ended"):
                held.pop(fact.job, None)  # type: ignore[union-attr]
        assert sum(held.values()) <= 3, f"at {t}"


@pytest.mark.parametrize("placing", ["prefer", "strict", "none", "prefer,repack"])
@pytest.mark.parametrize("name", BUSY)
def test_it_keeps_a_queue_on_the_nodes_that_it_owns(name: str, placing: str) -> None:
    groups = tuple(NodeGroup(group, 1, 4) for group in ("left", "middle", "right"))
    owned = {"a": ("left", "middle"), "b": ("right",)}
    cluster = Cluster(groups, queues=tuple(QueueSpec(q, groups=g) for q, g in owned.items()))
    rows = [
        replace(r, queue=("a", "b", "")[i % 3], gpus=min(r.gpus, 4), min_gpus=min(r.min_gpus, 4))
        for i, r in enumerate(some_rows(30, seed=13))
    ]
    story = play(rows, name, cluster, placing=placing)
    may_use = {"a": {0, 1}, "b": {2}, "": {0, 1, 2}}
    for fact in story.facts:
        if isinstance(fact, Started):
            used = {node for node, _ in fact.placement.spans}
            assert used <= may_use[rows[fact.job].queue]


@pytest.mark.parametrize("placing", ["prefer", "strict", "none,repack"])
@pytest.mark.parametrize("name", BUSY)
def test_it_keeps_a_gang_on_one_type_of_its_list(name: str, placing: str) -> None:
    cluster = Cluster.parse("1x4:a100+2x4:v100+1x4:t4")
    lists = ("a100|v100", "v100", "t4|v100", "")
    rows = [
        replace(r, gpu_type=lists[i % 4], gpus=min(r.gpus, 4), min_gpus=min(r.min_gpus, 4))
        for i, r in enumerate(some_rows(30, seed=14))
    ]
    story = play(rows, name, cluster, placing=placing)
    for fact in story.facts:
        if isinstance(fact, Started) and rows[fact.job].gpu_type:
            types = {cluster.group_of(node).gpu_type for node, _ in fact.placement.spans}
            assert len(types) == 1
            assert types <= set(rows[fact.job].gpu_type.split("|"))


@pytest.mark.parametrize("placing", ["prefer", "strict", "none,repack"])
@pytest.mark.parametrize("name", BUSY)
def test_it_keeps_a_gang_under_the_link_that_it_demands(name: str, placing: str) -> None:
    links = (Link("node", 12e9, nodes=1), Link("rack", 5e9, nodes=2), Link("fabric", 1e9))
    cluster = Cluster((NodeGroup("all", 4, 4),), links)
    levels = ("rack", "node", "rack?", "")
    rows = [
        replace(r, topology=levels[i % 4], gpus=min(r.gpus, 4), min_gpus=min(r.min_gpus, 4))
        for i, r in enumerate(some_rows(30, seed=15))
    ]
    story = play(rows, name, cluster, placing=placing)
    for fact in story.facts:
        if isinstance(fact, Started):
            nodes = {node for node, _ in fact.placement.spans}
            demanded = rows[fact.job].topology
            assert demanded != "node" or len(nodes) == 1
            assert demanded != "rack" or len({node // 2 for node in nodes}) == 1


@pytest.mark.parametrize("placing", ["prefer", "strict", "none,repack"])
@pytest.mark.parametrize("name", BUSY)
def test_it_keeps_a_gang_in_the_island_that_it_demands(name: str, placing: str) -> None:
    levels = ("island", "node", "island?", "")
    rows = [
        replace(
            r,
            topology=levels[i % 4],
            gpus=min(r.gpus, 2 + 2 * (i % 2)),
            min_gpus=min(r.min_gpus, 2),
            max_gpus=min(r.max_gpus, 2) if i % 4 == 0 else r.max_gpus,
        )
        for i, r in enumerate(some_rows(30, seed=16))
    ]
    story = play(rows, name, "3x2x2", placing=placing)
    for fact in story.facts:
        if isinstance(fact, Started):
            assert len(list(fact.placement.named())) == fact.placement.gpus
            islands = {(node, gpu // 2) for node, gpu in fact.placement.named()}
            assert rows[fact.job].topology != "island" or len(islands) == 1


@pytest.mark.parametrize("name", OWN)
def test_its_module_says_where_it_comes_from_and_what_it_knows(name: str) -> None:
    text = registered()[name].page
    assert "Knows:" in text
    assert "Stops running jobs:" in text
    assert name in IDLE or "Source:" in text


@pytest.mark.parametrize("name", EVERY)
def test_it_can_be_written_down_and_read_back(name: str) -> None:
    policy = parse_policy(name)
    assert parse_policy(spell(policy)) == policy
    assert spell(parse_policy(spell(policy))) == spell(policy)
    assert hash(policy) == hash(parse_policy(name)), "parameters are values"


@pytest.mark.parametrize("name", EVERY)
def test_its_parameters_cannot_be_changed(name: str) -> None:
    policy = parse_policy(name)
    with pytest.raises((AttributeError, TypeError)):
        policy.bypass = "strict"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EVERY)
def test_its_memory_is_a_value(name: str) -> None:
    hash(parse_policy(name).initial)


@pytest.mark.parametrize("name", OWN)
def test_it_fails_at_once_without_the_knowledge_it_needs(name: str) -> None:
    policy = parse_policy(name)
    options = Options(Cluster.uniform(2, 4), forecast="unknown")
    trace = trace_of(*some_rows(5))
    if "length" in policy.knows:
        with pytest.raises(InputError, match=r"it needs to know: length \(choose a forecast"):
            simulate(trace, policy, options)
    elif name in IDLE:
        with pytest.raises(DovetailError, match="leaves 5 jobs waiting"):
            simulate(trace, policy, options)
    else:
        assert simulate(trace, policy, options).summary["finished"] == 5


@pytest.mark.parametrize("name", OWN)
def test_it_fails_at_once_without_a_power_it_uses(name: str) -> None:
    policy = parse_policy(name)
    for power in sorted(policy.powers):
        options = Options(Cluster.uniform(2, 4), without=frozenset({power}))
        with pytest.raises(InputError, match=f"powers withheld here: {power}"):
            simulate(trace_of(Row(1, 1)), policy, options)
    check_needs(policy, policy.knows, frozenset())


def test_a_policy_that_does_nothing_ends_with_a_clear_error() -> None:
    with pytest.raises(DovetailError, match="no-op leaves 25 jobs waiting"):
        play([replace(r, submit_s=0.0) for r in some_rows(25)], "no-op", "2x4")


SCRIPT = """
import json, sys
from pathlib import Path
sys.path[:0] = [{src!r}, {tests!r}, {here!r}]
from builders import trace_of
from test_policy_contract import BUSY, some_rows
from dovetail.core.cluster import Cluster, NodeGroup, QueueSpec
from dovetail.core.policy import parse_policy
from dovetail.study.options import Options
from dovetail.study.run import simulate
for i, name in enumerate(BUSY):
    simulate(trace_of(*some_rows(30, seed=13)), parse_policy(name),
             Options(Cluster.uniform(2, 4)), log_to=Path(sys.argv[1]) / f"{{i}}.jsonl")
"""


def test_the_log_is_the_same_bytes_in_two_processes_with_other_hash_seeds(tmp_path: Path) -> None:
    script = SCRIPT.format(
        src=str(ROOT / "src"), tests=str(ROOT / "tests"), here=str(Path(__file__).parent)
    )
    logs = []
    for hash_seed in ("1", "4242"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=env)
        logs.append([(folder / f"{i}.jsonl").read_bytes() for i in range(len(BUSY))])
    for name, first, second in zip(BUSY, *logs, strict=True):
        assert first == second, name
        assert first.count(b'"e":"ended"') == 30


OUTSIDE = '''
"""Largest first: the widest waiting job that fits starts; none is stopped.

Source: a test. Knows: nothing. Stops running jobs: no.
"""
from dataclasses import dataclass
from typing import ClassVar

from dovetail.core.passes import fill
from dovetail.core.policy import Decision, register
from dovetail.core.order import Order


@register("widest-first")
@dataclass(frozen=True, slots=True)
class WidestFirst:
    """Order of width."""

    bypass: str = "skip"

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [-float(view.jobs.gpus[j]) for j in jobs])
    initial: ClassVar[None] = None

    def decide(self, view, memory):
        draft, because = fill(view, self.bypass)
        return Decision(draft, because=because)
'''


def test_a_policy_in_one_file_from_outside_gets_everything(tmp_path: Path) -> None:
    path = tmp_path / "widest_first.py"
    path.write_text(OUTSIDE)
    policy = parse_policy(f"{path}:WidestFirst:bypass=skip")
    assert spell(policy) == "widest-first:bypass=skip"
    # It runs through the study, with a log, metrics and a manifest.
    trace = trace_of(Row(1, 4), Row(2, 4), Row(2, 1))
    result = simulate(
        trace, policy, Options(Cluster.uniform(1, 2)), log_to=tmp_path / "log", keep_spans=True
    )
    assert result.jobs["finish_s"].to_list() == [9, 4, 5]
    assert result.summary["policy"] == "widest-first:bypass=skip"
    assert result.manifest["name"] == "widest-first"
    lines = (tmp_path / "log").read_text().splitlines()
    assert json.loads(lines[0])["manifest"]["policy"] == "widest-first:bypass=skip"
    assert lines[-1] == '{"e":"closed"}'
    # And it meets the same contract as the policies of the house.
    text = f"{path}:WidestFirst"
    test_it_is_a_pure_function_of_the_view_and_its_plans_are_legal(text)
    test_every_job_ends_under_every_placement_rule(text, "strict,best-fit,repack")
    test_it_uses_only_the_powers_it_declares(text)
    test_deciding_again_when_nothing_changed_changes_nothing(text)
    test_it_can_be_written_down_and_read_back(text)


def test_a_tally_of_a_scene_starts_empty() -> None:
    tally = tally_of(scene_of(trace_of(Row(1, 1))))
    assert tally.facts == 0
    run(SimWorld(scene_of(trace_of(Row(1, 1))), parse_policy("fifo"), tally), parse_policy("fifo"))
    assert tally.finish_s == [1.0]
