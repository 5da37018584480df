"""The policy `slurm` in scenes that a real slurmctld played: preemption, reservations, tiers."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import dovetail.policies
from builders import Story, play_scene, scene_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable, Labels
from dovetail.core.tenants import QosSpec, QueueSpec, ReservationSpec
from dovetail.core.trace import Trace
from dovetail.traces.slurm_reservations import read_reservations
from tests.slurm_cluster import reason_to_skip
from tests.slurm_record import WINDOWS_S
from tests.slurm_scenes import RECORDS, SCENES, Scene, SceneJob, recorded_scene

assert dovetail.policies
INTERVAL_S = 5.0
CYCLES = "bf_interval=5,sched_interval=5,bf_resolution=1,bf_window=60,batch_sched_delay=0"
Row = dict[str, str]


@dataclass(frozen=True)
class Played:
    """What a real Slurm made of a scene: its rows of sacct, and its reservations."""

    rows: list[Row]
    reservations: str

    @staticmethod
    def of(text: str) -> "Played":
        """Returns a scene of its record."""
        before, header, after = text.partition("JobID|")
        names = (header + after).splitlines()[0].split("|")
        lines = after.splitlines()[1:]
        return Played([dict(zip(names, line.split("|"), strict=True)) for line in lines], before)

    @property
    def zero_s(self) -> float:
        """Returns the Unix time of second 0."""
        first_s = unix_s(self.rows[0]["Submit"])
        return first_s - first_s % WINDOWS_S

    def first_rows(self) -> dict[str, Row]:
        """Returns the first run of each job by name."""
        return {row["JobName"]: row for row in reversed(self.rows)}


def unix_s(text: str) -> float:
    """Returns a time of sacct, which is in UTC here."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def ran_s(row: Row, job: SceneJob) -> float:
    """Returns how long a job really ran, or was to run if it was stopped."""
    if row["State"] != "COMPLETED":
        return float(job.run_s)
    return unix_s(row["End"]) - unix_s(row["Start"])


def replayed(scene: Scene, played: Played, cluster: Cluster, policy: str) -> Story:
    """Plays the jobs of a scene, submitted when they really were, under the policy."""
    rows, zero_s = played.first_rows(), played.zero_s
    jobs = sorted(scene.jobs, key=lambda job: job.after_s)
    own = [rows[job.name] for job in jobs]
    table = JobTable.build(
        [f"{int(row['JobID']):03}" for row in own],
        np.array([unix_s(row["Submit"]) - zero_s for row in own]),
        np.array([job.gpus for job in jobs], np.int64),
        user=Labels.of(["games"] * len(jobs)),
        account=Labels.of(["lab"] * len(jobs)),
        qos=Labels.of([row["QOS"] for row in own]),
        queue=Labels.of(
            [job.partitions or row["Partition"] for job, row in zip(jobs, own, strict=True)]
        ),
        reservation=Labels.of([job.reservation for job in jobs]),
        time_limit_s=np.array([60.0 * job.limit_min for job in jobs]),
    )
    run_s = np.array([ran_s(row, job) for row, job in zip(own, jobs, strict=True)])
    nothing, none = np.full(len(jobs), np.nan), np.zeros(len(jobs), np.int8)
    trace = Trace(table, run_s, nothing, none, "slurm", {})
    return play_scene(scene_of(trace, cluster, placing="strict"), f"slurm:{CYCLES}{policy}")


def apart(scene: Scene, played: Played, story: Story) -> dict[str, float]:
    """Returns by how many seconds each first start is later than the real one."""
    rows = played.first_rows()
    late = {}
    for number, job in enumerate(sorted(scene.jobs, key=lambda job: job.after_s)):
        real_s = unix_s(rows[job.name]["Start"]) - played.zero_s
        late[job.name] = story.starts(number)[0][0] - real_s
    return late


def nodes(count: int) -> tuple[NodeGroup, ...]:
    """Returns the nodes of a scene, each a group."""
    return tuple(NodeGroup(f"n{i}", 1, 4) for i in range(1, count + 1))


PREEMPTING = Cluster(
    nodes(2),
    qos=(
        QosSpec("low", 10),
        QosSpec("scratch", 5),
        QosSpec("high", 100, preempts=("low", "scratch")),
        QosSpec("normal"),
    ),
)
TIERED = Cluster(
    nodes(3),
    queues=(
        QueueSpec("wide", priority=1),
        QueueSpec("fast", priority=1, groups=("n2", "n3"), priority_tier=10),
        QueueSpec("own", priority=10, groups=("n3",), priority_tier=5),
    ),
)


PARTED = Cluster(
    nodes(3),
    queues=(
        QueueSpec("left", groups=("n1",)),
        QueueSpec("right", groups=("n2", "n3"), priority_tier=5),
    ),
)
GRACED = Cluster(
    nodes(2),
    qos=(QosSpec("low", 10, grace_s=15.0), QosSpec("high", 100, preempts=("low",))),
)
SITES = {"preemption": PREEMPTING, "tiers": TIERED, "several": PARTED, "grace": GRACED}


def reserved(played: Played) -> Cluster:
    """Returns the nodes with the reservations that scontrol printed."""
    named = read_reservations("scontrol", played.reservations, ZoneInfo("UTC"))
    specs = tuple(
        ReservationSpec(
            each.name,
            datetime.fromisoformat(each.start).timestamp() - played.zero_s,
            datetime.fromisoformat(each.end).timestamp() - played.zero_s,
            tuple(int(node[1:]) - 1 for node in each.nodes),
            each.accounts,
            each.users,
        )
        for each in named
    )
    return Cluster(nodes(3), reservations=specs)


def check(name: str, played: Played) -> None:
    """Asserts that every job starts within one interval of its real start."""
    cluster = SITES.get(name) or reserved(played)
    more = {
        "preemption": ",preempt_mode=requeue,priority_weight_qos=1000",
        "tiers": ",priority_weight_age=1000,priority_max_age=10",
        "grace": ",preempt_mode=requeue,priority_weight_qos=1000,preempt_exempt_time=00:00:30",
    }
    story = replayed(SCENES[name], played, cluster, more.get(name, ""))
    late = apart(SCENES[name], played, story)
    assert late and max(map(abs, late.values())) <= INTERVAL_S + 1, late
    if name in ("preemption", "grace"):
        check_victims(played, story)


def check_victims(played: Played, story: Story) -> None:
    """Asserts that the same jobs were stopped at the same times."""
    real = {
        row["JobName"]: unix_s(row["End"]) - played.zero_s
        for row in played.rows
        if row["State"] == "PREEMPTED"
    }
    rows = played.first_rows()
    by_id = {int(row["JobID"]): name for name, row in rows.items()}
    ours = {
        by_id[int(job_id)]: story.stops(job)[0][0]
        for job, job_id in enumerate(story.scene.trace.jobs.job_id)
        if story.stops(job)
    }
    assert ours.keys() == real.keys() and len(real) >= 3
    assert all(abs(ours[name] - at_s) <= INTERVAL_S + 1 for name, at_s in real.items())


@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_scene_is_what_slurmctld_made_of_it(name: str) -> None:
    check(name, Played.of((RECORDS / f"{name}.scene").read_text()))


@pytest.mark.slow
@pytest.mark.skipif(bool(reason_to_skip()), reason=f"no Slurm here: {reason_to_skip()}")
@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_real_slurmctld_plays_the_scene_like_that(name: str) -> None:
    """Less than three minutes each."""
    check(name, Played.of(recorded_scene(SCENES[name])))
