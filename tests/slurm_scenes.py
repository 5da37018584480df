"""Short scenes on a real Slurm: preemption by QOS, grace, reservations, priority tiers, and jobs in
several partitions.

`slurm_records/NAME.scene` has what came of each, written by `python -m tests.slurm_scenes NAME` on
Slurm 22.05.8: the lines of `scontrol show reservation`, and those of `sacct -D` behind a header.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.slurm_cluster import Node, Site, SlurmCluster

RECORDS = Path(__file__).parent / "slurm_records"
FIELDS = "JobID,JobName,QOS,Partition,State,Submit,Start,End,TimelimitRaw,NodeList"
SETTLED_S = 8.0
NODES = tuple(Node(f"n{i}", 4) for i in range(1, 4))
SETTINGS = (
    "SchedulerParameters=bf_interval=5,sched_interval=5,bf_continue,bf_resolution=1,bf_window=60,"
    "batch_sched_delay=0",
)
TENANTS = ("add account lab", "add user games account=lab")


@dataclass(frozen=True, slots=True)
class SceneJob:
    """A job that sleeps for `run_s`; it comes `after_s` the begin of the scene."""

    name: str
    after_s: float
    gpus: int
    run_s: int
    limit_min: int = 1
    options: tuple[str, ...] = ()

    @property
    def partitions(self) -> str:
        """Returns the partitions that it names."""
        named = (option.partition("=") for option in self.options)
        return next((names for key, _, names in named if key == "--partition"), "")

    @property
    def reservation(self) -> str:
        """Returns the reservation that it names."""
        named = (option.partition("=") for option in self.options)
        return next((name for key, _, name in named if key == "--reservation"), "")


@dataclass(frozen=True, slots=True)
class Scene:
    """A site, its jobs, and what an administrator does when the scene begins."""

    site: Site
    jobs: tuple[SceneJob, ...]
    seconds: float
    prepare: Callable[[SlurmCluster], None] = field(default=lambda cluster: None)


def _qos(name: str) -> tuple[str, ...]:
    return (f"--qos={name}", "--requeue")


PREEMPTION = Scene(
    Site(
        nodes=NODES[:2],
        partitions=("all Nodes=ALL Default=YES State=UP",),
        settings=(
            *SETTINGS,
            "PreemptType=preempt/qos",
            "PreemptMode=REQUEUE",
            "PriorityWeightQOS=1000",
        ),
        tenants=(
            *("add qos low", "add qos scratch", "add qos high"),
            "modify qos low set priority=10",
            "modify qos scratch set priority=5 preemptmode=cancel",
            "modify qos high set priority=100 preempt=low,scratch",
            "add account lab",
            "add user games account=lab qos=normal,low,scratch,high",
        ),
    ),
    jobs=(
        SceneJob("low-1", 0.0, 4, 100, 2, _qos("low")),
        SceneJob("scratch-1", 2.0, 2, 100, 2, _qos("scratch")),
        SceneJob("low-2", 4.0, 2, 100, 2, _qos("low")),
        # Stops the QOS of the lowest priority first, and one job only.
        SceneJob("high-1", 12.0, 2, 25, 1, _qos("high")),
        # Wants a whole node: the first candidates free it.
        SceneJob("high-2", 22.0, 4, 20, 1, _qos("high")),
        # May stop nobody.
        SceneJob("normal-1", 24.0, 4, 10, 1, _qos("normal")),
        # Two nodes.
        SceneJob("high-3", 50.0, 8, 15, 1, _qos("high")),
        SceneJob("low-3", 52.0, 1, 20, 1, _qos("low")),
    ),
    seconds=165.0,
)


def _reserve(cluster: SlurmCluster) -> None:
    now = int(time.time())

    def at(after_s: float) -> str:
        return datetime.fromtimestamp(now + after_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    create = ("scontrol", "create", "reservation")
    cluster.run(
        *create, "ReservationName=course", f"StartTime={at(30)}", "Duration=1", "Nodes=n1",
        "Users=games",
    )  # fmt: skip
    cluster.run(
        *create, "ReservationName=repair", f"StartTime={at(80)}", "Duration=1", "Nodes=n2,n3",
        "Users=root", "Flags=MAINT,IGNORE_JOBS",
    )  # fmt: skip


RESERVATIONS = Scene(
    Site(
        nodes=NODES,
        partitions=("all Nodes=ALL Default=YES State=UP MaxTime=5",),
        settings=SETTINGS,
        tenants=TENANTS,
    ),
    jobs=(
        SceneJob("runs-on", 0.0, 4, 40, 1),
        SceneJob("too-long", 2.0, 4, 15, 2),
        SceneJob("in-course", 4.0, 2, 20, 1, ("--reservation=course",)),
        SceneJob("all-nodes", 6.0, 12, 5, 1),
        SceneJob("in-course-2", 40.0, 4, 10, 1, ("--reservation=course",)),
        SceneJob("fits-before", 10.0, 4, 10, 1),
        SceneJob("small", 60.0, 1, 10, 1),
        SceneJob("meets-repair", 62.0, 4, 10, 1),
        SceneJob("meets-repair-2", 64.0, 4, 10, 1),
    ),
    seconds=165.0,
    prepare=_reserve,
)

TIERS = Scene(
    Site(
        nodes=NODES,
        partitions=(
            "wide Nodes=n[1-3] Default=YES State=UP PriorityTier=1",
            "fast Nodes=n[2-3] State=UP PriorityTier=10",
            "own Nodes=n3 State=UP PriorityTier=5 PriorityJobFactor=10",
        ),
        settings=(*SETTINGS, "PriorityWeightAge=1000", "PriorityMaxAge=0-00:10:00"),
        tenants=TENANTS,
    ),
    jobs=tuple(
        SceneJob(f"{partition}-{i}", after_s, gpus, run_s, limit_min, (f"--partition={partition}",))
        for i, (partition, after_s, gpus, run_s, limit_min) in enumerate(
            (
                ("wide", 0.0, 4, 25, 1),
                ("wide", 1.0, 4, 30, 1),
                ("wide", 2.0, 4, 20, 1),
                ("wide", 3.0, 4, 15, 1),
                ("wide", 4.0, 8, 10, 1),
                ("own", 5.0, 4, 15, 1),
                ("fast", 6.0, 8, 12, 1),
                ("fast", 7.0, 2, 20, 1),
                ("wide", 8.0, 1, 10, 1),
                ("own", 9.0, 2, 10, 1),
                ("fast", 30.0, 4, 10, 2),
                ("wide", 31.0, 12, 5, 1),
                ("own", 45.0, 1, 20, 2),
                ("fast", 50.0, 8, 10, 1),
                ("wide", 52.0, 2, 20, 1),
            )
        )
    ),
    seconds=150.0,
)

SEVERAL = Scene(
    Site(
        nodes=NODES,
        partitions=(
            "left Nodes=n1 Default=YES State=UP PriorityTier=1",
            "right Nodes=n[2-3] State=UP PriorityTier=5",
        ),
        settings=SETTINGS,
        tenants=TENANTS,
    ),
    jobs=tuple(
        SceneJob(f"{i}-{names}", after_s, gpus, run_s, 1, (f"--partition={names}",))
        for i, (names, after_s, gpus, run_s) in enumerate(
            (
                ("left", 0.0, 4, 30),
                ("right", 1.0, 4, 45),
                ("left,right", 2.0, 4, 15),
                ("left,right", 4.0, 4, 12),
                ("right", 5.0, 4, 10),
                ("right,left", 6.0, 2, 20),
                ("left", 7.0, 2, 10),
                ("left,right", 8.0, 8, 10),
                ("left,right", 20.0, 3, 15),
            )
        )
    ),
    seconds=110.0,
)

GRACE = Scene(
    Site(
        nodes=NODES[:2],
        partitions=("all Nodes=ALL Default=YES State=UP",),
        settings=(
            *SETTINGS,
            "PreemptType=preempt/qos",
            "PreemptMode=REQUEUE",
            "PreemptExemptTime=00:00:30",
            "PriorityWeightQOS=1000",
        ),
        tenants=(
            *("add qos low", "add qos high"),
            "modify qos low set priority=10 gracetime=15",
            "modify qos high set priority=100 preempt=low",
            "add account lab",
            "add user games account=lab qos=normal,low,high",
        ),
    ),
    jobs=(
        SceneJob("low-1", 0.0, 4, 110, 2, _qos("low")),
        SceneJob("low-2", 1.0, 2, 110, 2, _qos("low")),
        SceneJob("low-3", 2.0, 2, 110, 2, _qos("low")),
        # Waits for the exempt time of low-1, then for its grace.
        SceneJob("high-1", 12.0, 4, 25, 1, _qos("high")),
        # After the exempt times: grace alone.
        SceneJob("high-2", 60.0, 2, 50, 1, _qos("high")),
        SceneJob("high-3", 64.0, 4, 10, 1, _qos("high")),
    ),
    seconds=135.0,
)

SCENES = {
    "preemption": PREEMPTION,
    "reservations": RESERVATIONS,
    "tiers": TIERS,
    "several": SEVERAL,
    "grace": GRACE,
}


def recorded_scene(scene: Scene) -> str:
    """Returns what a real Slurm made of a scene."""
    with SlurmCluster(scene.site) as cluster:
        # Until its first pass slurmctld has not read its intervals.
        time.sleep(SETTLED_S)
        scene.prepare(cluster)
        reservations = cluster.run("scontrol", "-o", "show", "reservation")
        begin = time.monotonic()
        for job in sorted(scene.jobs, key=lambda job: job.after_s):
            time.sleep(max(0.0, job.after_s - (time.monotonic() - begin)))
            cluster.submit(_options(job), f"sleep {job.run_s}", "games")
        time.sleep(max(0.0, scene.seconds - (time.monotonic() - begin)))
        sacct = ("sacct", "-a", "-D", "-P", "-X", "-S", "now-1hour", "-o", FIELDS)
        return reservations + cluster.run(*sacct)


def _options(job: SceneJob) -> list[str]:
    nodes = -(-job.gpus // 4)
    return [
        "--account=lab",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        f"--gres=gpu:{job.gpus // nodes}",
        f"--time={job.limit_min}",
        f"--job-name={job.name}",
        *job.options,
    ]


def main(names: Sequence[str]) -> None:
    """Plays and records scenes anew; less than three minutes each."""
    for name in names:
        (RECORDS / f"{name}.scene").write_text(recorded_scene(SCENES[name]))


if __name__ == "__main__":
    main(sys.argv[1:])
