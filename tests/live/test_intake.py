"""What users ask for is on record before it is acknowledged, and once however often it is said."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.tenants import QueueSpec
from dovetail.live.edges.protocols import Incoming, JournalEntry, Request, StoreError
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.submission import Submission

CLUSTER = Cluster(
    (
        NodeGroup("a", 2, 4, gpu_type="a100", cpus=16, memory_bytes=64e9),
        NodeGroup("t", 1, 2, gpu_type="t4"),
    ),
    queues=(QueueSpec("research", quota_gpus=3), QueueSpec("open"), QueueSpec("t4", groups=("t",))),
)


@dataclass
class Scene:
    """An intake over a store in memory; time goes on by a second at each look."""

    cluster: Cluster = CLUSTER
    inbox: list[Incoming] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = Database(None)
        self.store = Store(self.database, Queries(self.database.connection))
        self._ticks = itertools.count(1)
        self.intake = Intake(self.database, clock=self, cluster=self.cluster, put=self.inbox.append)

    def now(self) -> float:
        return float(next(self._ticks))

    def submit(self, *specs: JobSpec, key: str = "k", user: str = "") -> tuple[int, ...]:
        return self.intake.submit([Submission(s) for s in specs], key=key, user=user)

    def become(self, job: int, state: State) -> None:
        self.store.write(JournalEntry(records=(JobRecord(job, state),)))

    @property
    def jobs(self) -> list[StoredJob]:
        return self.store.queries.rows()[::-1]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.database.close()


def spec(name: str = "job", **given: Any) -> JobSpec:
    return JobSpec(name, ("true",), "/ann", **given)


def test_no_output_goes_into_the_folder_of_the_cluster(scene: Scene, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "jobs" / "1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    intake = Intake(scene.database, clock=scene, cluster=CLUSTER, put=scene.inbox.append, home=home)
    for path in (home / "token", home / "jobs" / "1" / "output.log", tmp_path / "link" / "%j"):
        with pytest.raises(InputError, match="inside the folder of the cluster"):
            intake.submit([Submission(spec(output=str(path)))], key="k")
    assert scene.jobs == []
    for name in ("home.log", "homes-%j"):
        assert intake.submit([Submission(spec(output=str(tmp_path / name)))], key=name)


def test_a_submit_is_on_record_before_the_controller_hears_of_it(scene: Scene) -> None:
    there: list[JobRecord] = []

    def put(incoming: Incoming) -> None:
        assert isinstance(incoming, StoredJob)
        there.extend(job.record for job in scene.store.queries.some([incoming.number]))

    intake = Intake(scene.database, clock=scene, cluster=CLUSTER, put=put)
    assert intake.submit([Submission(spec(hold=True))], key="k", user="ann") == (1,)
    assert there == [JobRecord(1, submit_s=1.0, held=True)]
    assert [job.spec.user for job in scene.jobs] == ["ann"]


def test_the_same_key_gives_the_same_number_and_one_job(scene: Scene) -> None:
    assert scene.submit(spec()) == scene.submit(spec()) == (1,)
    assert scene.submit(spec(), key="other") == (2,)
    assert len(scene.jobs) == len(scene.inbox) == 2
    with pytest.raises(InputError, match="another request"):
        scene.submit(spec("changed"))
    with pytest.raises(InputError, match="another request"):
        scene.submit(spec(), user="bob")
    for key in ("", "x" * 201, "a\nb"):
        with pytest.raises(InputError, match="key"):
            scene.submit(spec(), key=key)
    assert len(scene.jobs) == 2


def test_an_array_is_one_job_for_each_index(scene: Scene) -> None:
    scene.submit(spec("before"), key="0")
    assert scene.intake.submit([Submission(spec("a"), (0, 1, 7))], key="k") == (2,)
    tasks = [(job.number, job.spec.array, job.spec.array_of) for job in scene.jobs[1:]]
    assert tasks == [(2, 0, 2), (3, 1, 2), (4, 7, 2)]
    find = scene.store.queries.numbers_of
    assert find("2") == (2, 3, 4)
    assert find("2_7") == (4,)
    assert find("3") == (3,)
    assert find("1") == (1,)
    for unknown in ("9", "2_3", "x", "", "2_", "_3", "-1", "9" * 40):
        with pytest.raises(InputError, match="job"):
            find(unknown)


def after(*jobs: int) -> tuple[Dependency, ...]:
    return tuple(Dependency("afterok", job) for job in jobs)


def test_jobs_of_one_submit_may_wait_for_each_other_and_for_arrays(scene: Scene) -> None:
    scene.intake.submit([Submission(spec("old"), (0, 1))], key="0")
    firsts = scene.intake.submit(
        [
            Submission(spec("prepare", after=after(1))),
            Submission(spec("train", after=after(-1)), (0, 1, 2)),
            Submission(spec("report", after=(*after(-1, -2), Dependency("afterany", 2)))),
        ],
        key="k",
    )
    assert firsts == (3, 4, 7)
    got = {job.number: job.spec.after for job in scene.jobs}
    assert got[3] == after(1, 2)
    assert got[4] == got[5] == got[6] == after(3)
    assert got[7] == (*after(3, 4, 5, 6), Dependency("afterany", 2))


@pytest.mark.parametrize("job", [7, -2, -3, 0, 2**70, -(2**70)])
def test_a_dependency_must_exist_before(scene: Scene, job: int) -> None:
    with pytest.raises(InputError, match="depend"):
        scene.submit(spec(), spec(after=(Dependency("after", job),)), spec())
    assert scene.jobs == []


def test_of_a_submit_all_jobs_are_kept_or_none(scene: Scene) -> None:
    with pytest.raises(InputError, match="depends on job 5"):
        scene.submit(spec("fine"), spec("wrong", after=(Dependency("after", 5),)))
    assert scene.jobs == [] and scene.inbox == []
    assert scene.submit(spec()) == (1,)


def gang(gpus: int) -> dict[str, Any]:
    return {"gpus": gpus, "min_gpus": gpus, "max_gpus": gpus}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**gang(11)}, "it needs 11 GPUs, the cluster has 10 .ask for fewer GPUs"),
    ({**gang(3), "gpu_type": "t4"}, "it needs 3 GPUs of type t4, the cluster has 2"),
    (
        {**gang(2), "gpu_type": "a100", "memory_bytes": 300e9},
        "it needs 279.4 GB of memory .139.7 GB for each .* more than 59.6 GB",
    ),
    (
        {**gang(8), "gpu_type": "a100", "cpus": 64.0},
        "it needs 64 CPUs .8 for each of its 8 GPUs., no node has more than 16",
    ),
    (
        {"gpu_type": "a100", "cpus": 64.0, "memory_bytes": 300e9},
        "it needs 64 CPUs and 279.4 GB of memory, no node has more than 16 CPUs and 59.6 GB",
    ),
    ({"gpu_type": "h100"}, "unknown type of GPU 'h100'"),
    ({"topology": "rack"}, "topology 'rack': no .* has the name 'rack'"),
    ({"topology": "node", **gang(5)}, "5 GPUs under one node, which has 4 at most"),
    ({"gpu_type": "a100|h100"}, "unknown type of GPU 'h100'"),
    ({"gpu_type": "t4|a100", **gang(9)}, "it needs 9 GPUs of type t4.a100, the cluster has 8"),
    ({"queue": "reserch"}, "did you mean 'research'"),
    ({"queue": "t4", **gang(3)}, "it needs 3 GPUs, queue 't4' has 2"),
    ({"queue": "t4", "gpu_type": "a100"}, "it needs 1 GPUs of type a100, queue 't4' has 0"),
    ({"queue": "research", **gang(4)}, "it asks for 4 GPUs, and queue research may hold 3 GPUs"),
    ({"array": 3}, "index of a task"),
    ({"name": "../../etc"}, "name"),
    ({"name": ""}, "name"),
    ({"name": "a\nb"}, "printable"),
    ({"user": "x" * 300}, "user"),
    ({"workdir": "relative"}, "absolute"),
    ({"workdir": "/ann/../etc"}, "absolute"),
    ({"output": "/ann/../x.log"}, "absolute"),
    ({"output": "/ann/%x.log"}, "'%x' is unknown"),
    ({"output": "/ann/x%"}, "'%' is unknown"),
    ({"output": "/ann/"}, "names a folder"),
    ({"script": "echo hi"}, "interpreter"),
    ({"script": "#!/bin/sh\n" + "x" * 300_000}, "256 KiB"),
    ({"script": "#!/bin/sh\0"}, "NUL"),
    ({"command": ("a", "\ud800")}, "UTF-8"),
    ({"command": ("x" * 200_000,)}, "longer"),
    ({"command": ("",)}, "first word"),
    ({"environment": (("A=B", "x"),)}, "no name of a variable"),
    ({"environment": (("A", "x"), ("A", "y"))}, "twice"),
    ({"environment": (("DOVETAIL_SOCKET", "x"),)}, "ours"),
    ({"environment": (("A", "x\0"),)}, "NUL"),
    ({"environment": (("A", "x" * 200_000),)}, "longer"),
    ({"priority": float("inf")}, "finite"),
    ({"cpus": -1.0}, "not below 0"),
    ({"memory_bytes": float("inf")}, "finite"),
    ({"deadline_s": 0.0}, "above 0"),
    ({"retries": 10**6}, "retries"),
    ({"grace_s": 1e12}, "grace_s"),
]


@pytest.mark.parametrize(("given", "why"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_nobody_may_submit_is_refused(scene: Scene, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        scene.submit(replace(spec(), **given))
    assert scene.jobs == [] and scene.inbox == []


def test_what_is_allowed_is_not_refused(scene: Scene) -> None:
    fine = [
        spec(**gang(10)),
        spec(**gang(8), gpu_type="a100", cpus=32.0, memory_bytes=128e9),
        spec(gpus=1, max_gpus=10, trains=True),
        spec(queue="research", **gang(3), gpu_type="t4|A100", topology="node"),
        spec(queue="open", **gang(8)),
        spec(output="/ann/logs/%A_%a-%j-100%%.log"),
        spec("Größe 100%", script="#!/bin/sh\necho $HOME `id`\n"),
        replace(spec("clock"), command=(), paced=True, duration_s=5.0),
    ]
    assert scene.submit(*fine) == tuple(range(1, 9))
    stored = [scene.store.queries.job(job.number) for job in scene.jobs]
    assert [job.spec for job in stored if job] == fine


def test_too_many_tasks_and_no_job_at_all_are_refused(scene: Scene) -> None:
    with pytest.raises(InputError, match="over 10000"):
        scene.intake.submit([Submission(spec(), tuple(range(10_001)))], key="k")
    with pytest.raises(InputError, match="no job in it"):
        scene.intake.submit([], key="k")


def test_a_request_is_durable_once_and_in_order(scene: Scene) -> None:
    scene.submit(spec(), spec(), key="s")
    ask = scene.intake.request
    assert ask("cancel", jobs=(1, 2, 1), key="a") == (1, 2)
    assert ask("cancel", jobs=(1, 2, 1), key="a") == (1, 2)
    assert ask("drain", node=2, key="b") == (3,)
    assert ask("down", argument="leave", key="c") == (4,)
    expected = [
        Request(1, "cancel", 1),
        Request(2, "cancel", 2),
        Request(3, "drain", node=2),
        Request(4, "down", argument="leave"),
    ]
    assert scene.inbox[2:] == expected
    assert list(scene.store.recover().requests) == expected


@pytest.mark.parametrize(
    ("verb", "given", "why"),
    [
        ("cancel", {"jobs": (9,)}, "job 9: there is no such job"),
        ("cancel", {"jobs": (2**70,)}, "there is no such job"),
        ("cancel", {}, "no job was named"),
        ("drain", {"node": 3}, r"no such node \(0..2\)"),
        ("undrain", {}, "no such node"),
        ("down", {"argument": "now"}, "'leave', 'drain' or 'save'"),
        ("cancle", {"jobs": (1,)}, "did you mean 'cancel'"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    scene: Scene, verb: str, given: dict[str, Any], why: str
) -> None:
    scene.submit(spec(), key="s")
    with pytest.raises(InputError, match=why):
        scene.intake.request(verb, key="k", **given)
    assert scene.store.queries.pending() == []


ALLOWED = {
    "cancel": {State.PENDING, State.CONFIGURING, State.RUNNING, State.COMPLETING},
    "hold": {State.PENDING},
    "release": {State.PENDING},
    "requeue": set(State) - {State.PENDING, State.COMPLETING},
}


@pytest.mark.parametrize("verb", ALLOWED)
@pytest.mark.parametrize("state", State)
def test_a_verb_fits_the_state_of_the_job(scene: Scene, verb: str, state: State) -> None:
    scene.submit(spec(), key="s")
    scene.become(1, state)
    if state in ALLOWED[verb]:
        assert scene.intake.request(verb, jobs=(1,), key="k") == (1,)
    else:
        with pytest.raises(InputError, match=f"job 1: it .*{state}"):
            scene.intake.request(verb, jobs=(1,), key="k")


def test_of_an_array_the_tasks_that_are_over_are_left_alone(scene: Scene) -> None:
    scene.intake.submit([Submission(spec(), (0, 1, 2))], key="s")
    scene.become(2, State.COMPLETED)
    scene.intake.request("cancel", jobs=(1, 2, 3), key="k")
    assert [r.job for r in scene.store.queries.pending()] == [1, 3]


def test_a_full_disk_acknowledges_nothing_and_forgets_the_key() -> None:
    scene = Scene()
    scene.database.connection.execute("PRAGMA max_page_count=40")
    large = spec(script="#!/bin/sh\n" + "x" * 200_000)
    with pytest.raises(StoreError):
        scene.submit(large, key="k")
    assert scene.inbox == [] and scene.jobs == []
    scene.database.connection.execute("PRAGMA max_page_count=10000")
    assert scene.submit(large, key="k") == (1,)
    assert len(scene.inbox) == 1
    scene.database.close()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
@settings(max_examples=25)
def test_numbers_follow_the_order_of_submission_whatever_is_repeated(
    said: list[tuple[int, int]],
) -> None:
    scene = Scene()
    answers: dict[str, tuple[int, ...]] = {}
    for key, tasks in said:
        name = f"{key}/{tasks}"
        got = scene.intake.submit([Submission(spec(), tuple(range(tasks)))], key=name)
        assert answers.setdefault(name, got) == got
    numbers = [job.number for job in scene.jobs]
    assert numbers == list(range(1, len(numbers) + 1))
    times = [job.record.submit_s for job in scene.jobs]
    assert times == sorted(times)
    assert [a.number for a in scene.inbox if isinstance(a, StoredJob)] == numbers
    scene.database.close()


def test_a_share_of_a_cpu_too_small_to_count_bounds_nothing(scene: Scene) -> None:
    scene.submit(spec(cpus=5e-324, memory_bytes=5e-324))
    assert len(scene.jobs) == 1
