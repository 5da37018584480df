"""What GIMBAL's early exit costs and saves, on seeded co-location sets.

    python -m benchmarks.gimbal_search --sets 30

Each set is a job of 4 or 8 GPUs and one to four smaller ones beside it, models drawn from the zoo,
lengths from 1 to 10 hours, packed by Lucid without its rules. The search runs in the simulated
world, at its own pace and cost. Quality is the goal's objective after the full search over that
after the other.
"""

from __future__ import annotations

import argparse
from statistics import fmean

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.forecast.forecasts import Known
from dovetail.mechanisms.calibration.goals import Member, goal_of
from dovetail.mechanisms.calibration.primitives import Setting, free_competition
from dovetail.mechanisms.calibration.search import Search
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.zoo.models import shipped
from dovetail.policies.gimbal import Calibrated
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from papers.frame.experiment import tally_of
from papers.gimbal.search import PACKING

MODELS = (
    "muri/vgg16", "muri/resnet18", "muri/bert", "muri/gpt2", "pollux/cifar10", "pollux/deepspeech2",
    "pollux/yolov3", "pollux/imagenet", "elasticflow/resnet50", "elasticflow/inception3",
    "afs/transformer", "afs/dcgan", "afs/videoprediction", "afs/googlenet",
)  # fmt: skip


def drawn_set(seed: int) -> Scene:
    """Returns a scene in which one job and smaller ones beside it arrive at once."""
    draw = np.random.default_rng(seed)
    size = int(draw.choice([4, 8]))
    guests, room = [], size
    for _ in range(int(draw.integers(1, 5))):
        guest = int(draw.choice([g for g in (1, 2, 4) if g < size]))
        if guest <= room:
            guests.append(guest)
            room -= guest
    gpus = np.array([size, *guests], np.int64)
    jobs = JobTable.build(
        [str(i) for i in range(len(gpus))],
        np.arange(len(gpus), dtype=np.float64),
        gpus,
        model=Labels.of([str(m) for m in draw.choice(MODELS, len(gpus))]),
        shareable=np.ones(len(gpus), bool),
    )
    trace = Trace.of(jobs, draw.uniform(HOUR_S, 10 * HOUR_S, len(gpus)))
    cluster = Cluster.parse(f"{size // 4}x4:A40")
    physics = placed_physics(jobs, cluster, shipped(), interference=MeasuredInterference())
    return Scene(
        trace=trace,
        cluster=cluster,
        truth=physics,
        belief=physics,
        forecast=Known(trace.duration_s),
    )


def searched(scene: Scene, policy: Policy) -> tuple[float, float, tuple[Search, ...], SimWorld]:
    """Returns when the search began and ended, the searches, and the world at its end."""
    world = SimWorld(scene, policy, tally_of(scene))
    memory, wake_at, began_s = policy.initial, float("inf"), 0.0
    while world.advance(wake_at):
        decision = policy.decide(world.observe(), memory)
        memory, wake_at = decision.memory, decision.wake_at
        if decision.draft is not None:
            world.apply(decision.draft)
        assert isinstance(memory, Calibrated)
        now = world.observe().now
        if now >= scene.trace.jobs.submit_s[-1]:
            if any(s.trial is not None and s.steps == 0 for s in memory.searches):
                began_s = now
            if all(s.due_s == float("inf") for s in memory.searches):
                return began_s, now, memory.searches, world
    raise AssertionError("all jobs ended before the search")


def members_of(world: SimWorld, search: Search, setting: Setting) -> list[Member]:
    """Returns the jobs of a set at the start of the scene, with the speeds of a setting."""
    view, jobs = world.observe(), search.star.members
    placed = [m.on(bare) for m, bare in zip(setting, search.bare, strict=True)]
    members = []
    for i, job in enumerate(jobs):
        near = range(1, len(jobs)) if i == 0 else (0,)
        speed = view.physics.rate(job, placed[i], [(jobs[k], placed[k]) for k in near])
        members.append(
            Member.of(
                gpus=placed[i].gpus, utilization=view.physics.sharing.utilization(job), speed=speed,
                left_s=view.progress.length_s([job])[0], deadline_s=float("inf"), now=0.0,
            )
        )  # fmt: skip
    return members


def work(members: list[Member]) -> float:
    """Returns what the jobs of a set do together over what the largest does alone."""
    return sum(m.gpus * m.speed for m in members) / members[0].gpus


def main() -> None:
    """Prints gain, quality and time of the search with and without early exit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=30)
    parser.add_argument("--goal", choices=("jct", "makespan"), default="jct")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    gains: list[float] = []
    qualities: list[float] = []
    full_s: list[float] = []
    early_s: list[float] = []
    steps: list[tuple[int, int]] = []
    works: list[tuple[float, float]] = []
    for seed in range(given.sets):
        scene = drawn_set(seed)
        ends = {}
        for early in ("true", "false"):
            policy = parse_policy(f"gimbal:inner={PACKING},goal={given.goal},early-exit={early}")
            began, ended, searches, world = searched(scene, policy)
            if not searches:
                break  # no two of them fit the memory together
            goal = goal_of(given.goal)
            free = [members_of(world, s, free_competition(s.bare)) for s in searches]
            best = [members_of(world, s, s.now) for s in searches]
            before, after = sum(map(goal.objective, free)), sum(map(goal.objective, best))
            if early == "true":
                works += [(work(f), work(b)) for f, b in zip(free, best, strict=True)]
            ends[early] = (before, after, ended - began, sum(s.steps for s in searches))
        if len(ends) < 2:
            continue
        quick, full = ends["true"], ends["false"]
        gains.append(full[0] / full[1])
        qualities.append(full[1] / quick[1])
        full_s.append(full[2])
        early_s.append(quick[2])
        steps.append((quick[3], full[3]))
        if given.verbose:
            print(seed, *(f"{x:.3f}" for x in (gains[-1], qualities[-1])), steps[-1])
    print(f"{len(gains)} sets, goal {given.goal}")
    print(f"objective before over after the full search: {fmean(gains):.3f}")
    print(f"quality of the early exit: {fmean(qualities):.2%}, worst {min(qualities):.2%}")
    free_work, best_work = fmean(w[0] for w in works), fmean(w[1] for w in works)
    print(f"work of a set over that of its largest job: {free_work:.2f}, then {best_work:.2f}")
    part = fmean(early_s) / fmean(full_s)
    print(f"its time: {fmean(early_s):.0f} s of {fmean(full_s):.0f} s, {part:.0%}")


if __name__ == "__main__":
    main()
