"""What a worker of this machine finds around it, and what bounds it."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.engines import cgroup, local_engine
from dovetail.live.engines.cgroup import MEMORY, SHARE, ControlGroups
from dovetail.live.engines.devices import Devices, slots, store_names, usable_cores
from dovetail.live.engines.engine_spec import EngineSpec
from dovetail.live.engines.local import LocalNodes, LocalProcessSettings
from dovetail.live.engines.local_engine import LocalEngine, cluster_of
from dovetail.live.engines.nvml import GpuInventory
from dovetail.live.engines.processes import OUT_OF_MEMORY, ProcessLauncher
from dovetail.live.engines.stored_lease import StoredFence
from dovetail.live.node.launcher import WorkerExit
from dovetail.live.node.transport import EventLoop
from dovetail.wire.agent import (
    WIRE_VERSION,
    AgentOrder,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
)
from dovetail.wire.worker import Regroup
from patience import FOR_EVER_S, until

NO_GROUPS = ControlGroups(0, None, None)
PLAIN = StartWorker(7, 3, 1, 1, ("program",), "/job", "/job/out", "/work")
TRAINS = replace(PLAIN, trains=True)
SOCKET = Path("/home/agent.sock")
LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


WIRE = {"given": {}, "wire": WIRE_VERSION}
TWO_GPUS = Devices(("GPU-0", "GPU-1"), "nvidia-h100-80gb", 80 << 30)


def environment(order: StartWorker, devices: Devices, **environ: str) -> dict[str, str]:
    setting = LocalProcessSettings(devices, SOCKET, NO_GROUPS, environ)
    return setting.prepare(order, "secret", Path("/worker"))["environment"]


def test_slots_have_cores_of_their_own_as_far_as_there_are_any() -> None:
    cores = usable_cores()
    each = [c for one in slots(cores).cores for c in one]
    assert sorted(each) == sorted(os.sched_getaffinity(0))
    assert len(slots(3 * cores).cores) == 3 * cores
    second = slots(2, first=2, of=4)
    assert second.names == ("slot-0", "slot-1") and second.cores == slots(4).cores[2:]


def test_a_training_worker_learns_how_to_call_and_sees_its_gpu_alone() -> None:
    order = replace(TRAINS, share=0.5, memory_bytes=1 << 30)
    env = environment(order, TWO_GPUS, CUDA_VISIBLE_DEVICES="0,1", DOVETAIL_TOKEN="another's")
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert env["DOVETAIL_SOCKET"] == str(SOCKET) and env["DOVETAIL_TOKEN"] == "secret"
    assert env["DOVETAIL_WORKER"] == "7/3" and env["DOVETAIL_FOLDER"] == "/job"
    assert env["DOVETAIL_MEMORY_BYTES"] == str(1 << 30)
    assert "RANK" not in env and "OMP_NUM_THREADS" not in env


def test_a_plain_worker_gets_what_torchrun_gives_and_no_secret() -> None:
    ranks = replace(PLAIN, rank=5, world_size=8, local_rank=0, local_world_size=2)
    order = replace(ranks, distributed=True, master="10.0.0.1:1234", local_gpus=(1, 0))
    env = environment(order, TWO_GPUS, DOVETAIL_TOKEN="another's", DOVETAIL_HOME="/h", MINE="1")
    said = {k: env[k] for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    assert said == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "1234")
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-0", "the local rank names its own GPU"
    assert "DOVETAIL_TOKEN" not in env and "DOVETAIL_HOME" not in env and env["MINE"] == "1"


def test_a_worker_inherits_nothing_of_the_allocation_that_its_agent_runs_in() -> None:
    allocation = {
        "SLURM_JOB_ID": "9", "SLURM_PROCID": "3", "SLURMD_NODENAME": "n3", "SBATCH_TIMELIMIT": "1",
        "NOTIFY_SOCKET": "@x", "INVOCATION_ID": "3",
        "SRUN_DEBUG": "3", "PMI_RANK": "3", "PMIX_RANK": "3", "OMPI_COMM_WORLD_RANK": "3",
        "RAY_ADDRESS": "auto", "PRTE_X": "1",
    }  # fmt: skip
    for order in (PLAIN, TRAINS):
        env = environment(order, TWO_GPUS, PATH="/bin", **allocation)
        assert not env.keys() & allocation.keys() and env["PATH"] == "/bin"
    asked = replace(PLAIN, environment=(("RAY_ADDRESS", "10.0.0.1:6379"),))
    assert environment(asked, TWO_GPUS, **allocation)["RAY_ADDRESS"] == "10.0.0.1:6379"


def test_on_one_of_several_machines_workers_learn_its_address_and_interface() -> None:
    def made(order: StartWorker) -> dict[str, str]:
        setting = LocalProcessSettings(TWO_GPUS, SOCKET, NO_GROUPS, {}, host="127.0.0.3")
        return setting.prepare(order, "secret", Path("/worker"))["environment"]

    env = made(TRAINS)
    assert (env["DOVETAIL_HOST"], env["NCCL_SOCKET_IFNAME"]) == ("127.0.0.3", "=lo")
    assert made(replace(PLAIN, distributed=True))["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in made(PLAIN), "it meets nobody"
    own = replace(TRAINS, environment=(("NCCL_SOCKET_IFNAME", "ib0"),))
    assert made(own)["NCCL_SOCKET_IFNAME"] == "ib0"


def test_a_task_of_a_job_for_slurm_finds_the_names_of_its_nodes() -> None:
    ranks = replace(PLAIN, rank=2, group_rank=1, group_world_size=2, slurm_variables=True)
    env = environment(replace(ranks, nodes=("n3", "n4"), tasks_on_nodes=(2, 2)), TWO_GPUS)
    assert env["SLURM_JOB_NODELIST"] == env["SLURM_NODELIST"] == "n[3-4]"
    assert (env["SLURM_TASKS_PER_NODE"], env["SLURMD_NODENAME"]) == ("2(x2)", "n4")
    assert (env["SLURM_NODEID"], env["SLURM_NNODES"]) == ("1", "2")


def test_a_share_is_said_where_mps_runs(tmp_path: Path) -> None:
    order = replace(TRAINS, share=0.3)
    here = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert LIMIT not in environment(order, TWO_GPUS, **here), "a folder that a daemon left behind"
    (tmp_path / "control").touch()
    assert environment(order, TWO_GPUS, **here)[LIMIT] == "30"
    assert LIMIT not in environment(order, TWO_GPUS, CUDA_MPS_PIPE_DIRECTORY="/none")
    asked = replace(order, environment=tuple(here.items()))
    assert environment(asked, TWO_GPUS)[LIMIT] == "30", "the job's own word goes first"
    assert LIMIT not in environment(replace(order, share=1.0), TWO_GPUS, **here)


def test_on_a_slot_one_thread_is_the_default_and_the_user_may_say_more() -> None:
    env = environment(replace(PLAIN, gpu=0), slots(1))
    assert env["OMP_NUM_THREADS"] == "1" and env["CUDA_VISIBLE_DEVICES"] == ""
    asked = replace(PLAIN, gpu=0, environment=(("OMP_NUM_THREADS", "4"), ("RANK", "no")))
    env = environment(asked, slots(1))
    assert env["OMP_NUM_THREADS"] == "4" and env["RANK"] == "no"
    # A process alone has all its slots; torchrun starts others there, which share them.
    both = replace(PLAIN, gpu=0, gpus=(0, 1))
    devices = slots(2)
    cores = len({core for of_slot in devices.cores for core in of_slot})
    assert environment(both, devices)["OMP_NUM_THREADS"] == str(cores)
    starts = replace(both, distributed=True, per_node=True)
    assert environment(starts, devices)["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("local", EngineSpec("local")),
        ("local:4", EngineSpec("local", 1, 4)),
        ("local:2x3", EngineSpec("local", 2, 3)),
        ("emulated:4x8", EngineSpec("emulated", 4, shape="4x8")),
        ("emulated:4x8:t4+2x4:v100@60", EngineSpec("emulated", 6, 0, "4x8:t4+2x4:v100", 60.0)),
    ],
)
def test_engines_are_said_in_a_word(text: str, words: EngineSpec) -> None:
    assert EngineSpec.parse(text) == words


@pytest.mark.parametrize(
    "text",
    ["", "ray", "local:", "local:0", "local:0x2", "local:2x", "local:x", "local:-1", "local:99999",
     "emulated", "emulated:", "emulated:4", "emulated:0x0", "emulated:4x4@", "emulated:4x4@0",
     "emulated:4x4@nan", "emulated:4x4@inf", "emulated:4x4@-1", "local:4@2"],
)  # fmt: skip
def test_other_words_are_refused_with_a_cure(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        LocalEngine(text, tmp_path)


def test_the_cluster_is_what_the_engine_gives() -> None:
    assert cluster_of(EngineSpec.parse("local:2x3")).installed == (3, 3)
    assert cluster_of(EngineSpec.parse("emulated:2x4:t4+1x8:v100")).installed == (4, 4, 8)
    (group,) = cluster_of(EngineSpec.parse("local:2")).groups
    assert group.gpu_type == "cpu" and group.gpu_memory_bytes > 0


def test_a_fence_on_disk_is_found_again(tmp_path: Path) -> None:
    fence = StoredFence(tmp_path / "fence.json")
    fence.accept_epoch(3)
    fence.accept_generation(1, 4)
    fence.use_up(1, 0)
    assert stat.S_IMODE((tmp_path / "fence.json").stat().st_mode) == 0o600
    again = StoredFence(tmp_path / "fence.json")
    assert (
        not again.accept_epoch(2) and not again.accept_generation(1, 3) and again.is_used_up(1, 0)
    )
    (tmp_path / "fence.json").write_text('{"epoch": ')
    assert StoredFence(tmp_path / "fence.json").epoch == -1


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    made = ControlGroups.below_own(f"dovetail-test-{os.getpid()}")
    yield made
    made.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    yield path
    shutil.rmtree(path)


def run(folder: Path, groups: ControlGroups, text: str, **limits: Any) -> WorkerExit:
    """Runs a program on the first of two slots and returns its end."""
    setting = LocalProcessSettings(slots(2), folder / "agent.sock", groups)
    launcher = ProcessLauncher(folder / "workers", setting)
    launch = ((sys.executable, "-c", text), str(folder), str(folder / "out"), str(folder))
    launcher.start(StartWorker(7, 0, 1, 0, *launch, **limits), "t", 0.0)
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    launcher.close()
    return ends[0]


def test_a_worker_is_kept_to_the_cores_of_its_slot(folder: Path) -> None:
    run(folder, NO_GROUPS, "import os; print(sorted(os.sched_getaffinity(0)))")
    assert (folder / "out").read_text() == f"{sorted(slots(2).cores[0])}\n"


def test_a_share_is_a_weight_where_groups_can_be_made(folder: Path, groups: ControlGroups) -> None:
    if SHARE not in groups.enforces:
        pytest.skip("no control group can be made here")
    text = "print(*[l for l in open('/proc/self/cgroup') if 'dovetail-test' in l])"
    assert run(folder, groups, text, share=0.25).exit_code == 0
    assert "7-0" in (folder / "out").read_text()
    joined = groups.make("probe", 0.25, 0)
    assert joined and groups.cpu is not None
    weight = groups.cpu / "probe" / ("cpu.shares" if groups.version == 1 else "cpu.weight")
    assert weight.read_text().strip() == ("256" if groups.version == 1 else "25")
    groups.limit("probe", 0.5, 0)
    assert weight.read_text().strip() == ("512" if groups.version == 1 else "50")
    groups.remove("probe")
    assert not (groups.cpu / "7-0").exists() and not (groups.cpu / "probe").exists()


def test_a_worker_over_its_memory_is_killed_and_the_end_says_so(
    folder: Path, groups: ControlGroups
) -> None:
    if MEMORY not in groups.enforces:
        pytest.skip("no control group of memory can be made here")
    text = "hog = []\nwhile True: hog.append(bytearray(8 << 20))"
    assert run(folder, groups, text, memory_bytes=64 << 20) == WorkerExit(7, 0, -9, OUT_OF_MEMORY)


HOLDS = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
held = bytearray(b"x") * (48 << 20)
(folder / "holds").touch()
while not (folder / "more").exists():
    time.sleep(0.01)
more = bytearray(b"x") * (64 << 20)
(folder / "grew").touch()
"""


@pytest.mark.parametrize("grows", [True, False])
def test_who_holds_more_than_a_new_bound_keeps_it_and_gets_no_more(
    folder: Path, groups: ControlGroups, grows: bool
) -> None:
    if MEMORY not in groups.enforces:
        pytest.skip("no control group of memory can be made here")
    setting = LocalProcessSettings(slots(1), folder / "agent.sock", groups)
    launcher = ProcessLauncher(folder / "workers", setting)
    words = (sys.executable, "-c", HOLDS, str(folder))
    order = StartWorker(7, 0, 1, 0, words, str(folder), str(folder / "out"), str(folder))
    launcher.start(order, "t", 0.0)
    until((folder / "holds").exists)
    launcher.limit(replace(order, generation=2, memory_bytes=16 << 20))
    assert launcher.poll() == [], "it lives, with what it has"
    if not grows:
        launcher.limit(replace(order, generation=3))
    (folder / "more").touch()
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    launcher.close()
    assert ends == [WorkerExit(7, 0, -9, OUT_OF_MEMORY) if grows else WorkerExit(7, 0, 0)]
    assert (folder / "grew").exists() is not grows


def test_without_control_groups_nothing_is_claimed(tmp_path: Path) -> None:
    none = ControlGroups.below_own("dovetail", tmp_path / "nowhere")
    assert none.enforces == frozenset() and none.make("1-0", 0.5, 1) == ()
    assert not none.ran_out_of_memory("1-0")


def test_version_2_is_used_as_far_as_it_is_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with plain files: the kernel of the machine of this test has version 1."""
    monkeypatch.setattr(cgroup, "_own_groups", lambda: {"": "/user"})
    own = tmp_path / "user"
    (own / "d" / "1-0").mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory")
    for group in (own / "d", own / "d" / "1-0"):
        (group / "cgroup.procs").write_text("")
    found = ControlGroups.below_own("d", tmp_path)
    # A file gives back what was asked; the kernel would give the names of what it granted.
    assert (own / "d" / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert found.enforces == frozenset(), "asked for and not granted is not enforced"
    both = ControlGroups(2, own / "d", own / "d")
    assert both.make("1-0", 0.25, 1000) == (str(own / "d" / "1-0" / "cgroup.procs"),)
    assert (own / "d" / "1-0" / "cpu.weight").read_text() == "25"
    assert (own / "d" / "1-0" / "memory.max").read_text() == "1000"
    (own / "d" / "1-0" / "memory.stat").write_text("anon 3000\nfile 90000\nshmem 1000\n")
    both.limit("1-0", 0.25, 1000)
    assert int((own / "d" / "1-0" / "memory.max").read_text()) == 4200, "less would kill it"
    both.limit("1-0", 0.25, 0)
    assert (own / "d" / "1-0" / "memory.max").read_text() == "max"
    (own / "d" / "1-0" / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert both.ran_out_of_memory("1-0")


def test_groups_that_killed_agents_left_are_swept_and_no_living_cluster_misses_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with plain folders: like a group with processes, one with a file in it stays."""
    monkeypatch.setattr(cgroup, "_own_groups", lambda: {"": "/user/session-1"})
    own = tmp_path / "user" / "session-1"
    names = ("dovetail-left/7-0", "../session-2/dovetail-left", "dovetail-busy/7-0", "dovetail-new")
    groups = [(own / name).resolve() for name in (*names, "others/7-0")]
    for group in groups:
        group.mkdir(parents=True)
    (own / "dovetail-busy" / "7-0" / "process").write_text("1")
    for group in own.glob("*"):
        if group.name != "dovetail-new":
            os.utime(group, (0, 0))
    os.utime(groups[1], (0, 0))
    ControlGroups.sweep(tmp_path)
    assert [group.exists() for group in groups] == [False, False, True, True, True]
    assert not (own / "dovetail-left").exists()
    # Where its group was swept, the next worker brings it back.
    back = ControlGroups(1, own / "dovetail-left", None)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert back.make("7-2", 0.5, 0) and (own / "dovetail-left" / "7-2").is_dir()


def nodes_of(folder: Path, devices: Devices, loop: EventLoop) -> LocalNodes:
    return LocalNodes([folder / "0"], [devices], loop, time.monotonic, NO_GROUPS)


def test_workers_are_not_taken_for_those_of_other_gpus(folder: Path) -> None:
    swapped = replace(TWO_GPUS, names=("GPU-1", "GPU-0"))
    asleep = (sys.executable, "-c", f"import time; time.sleep({FOR_EVER_S})")
    launch = (asleep, str(folder), str(folder / "out"), str(folder))
    with closing(EventLoop()) as loop:
        with closing(nodes_of(folder, swapped, loop)):
            pass
        with closing(nodes_of(folder, TWO_GPUS, loop)) as nodes:
            start = StartWorker(7, 0, 1, 1, *launch)
            nodes.handle(0, AgentOrder(1, start=start), 0.0)
            assert nodes.alive == [(0, 7, 0)]
        with pytest.raises(DovetailError, match=r"on the GPUs GPU-0, GPU-1, and now .* GPU-1, GPU"):
            nodes_of(folder, swapped, loop)
        with closing(nodes_of(folder, TWO_GPUS, loop)) as nodes:
            nodes.end_all(0.0, 0.0)
            until(lambda: (nodes.tick(0.0), not nodes.alive)[1])


def test_a_later_agent_starts_nothing_that_was_started_before(folder: Path) -> None:
    start = StartWorker(7, 0, 3, 0, ("true",), str(folder), str(folder / "out"), "/")
    with closing(EventLoop()) as loop:
        with closing(nodes_of(folder, TWO_GPUS, loop)) as nodes:
            for worker in (0, 1):
                nodes.handle(0, AgentOrder(2, end=EndWorker(7, worker, 0.0)), 0.0)
            told = NotifyWorkers(7, (1,), regroup=Regroup(3, (1,)))
            nodes.handle(0, AgentOrder(2, tell=told), 0.0)
            nodes.handle(0, AgentOrder(2, forget=Forget(7, 0)), 0.0)
        with closing(nodes_of(folder, TWO_GPUS, loop)) as nodes:
            assert nodes.handle(0, AgentOrder(1, hail=InventoryRequest(1)), 0.0) == [], (
                "an older controller"
            )
            assert nodes.handle(0, AgentOrder(2, start=start), 0.0) == [], "a number of before"
            older = replace(start, worker=2, generation=2)
            assert nodes.handle(0, AgentOrder(2, start=older), 0.0) == [], "an older generation"


def test_agents_that_are_coming_up_or_were_faster_are_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller was killed while it brought them up, and another follows at once."""
    (folder / "nodes").mkdir()
    looks = 0

    def is_running(home: Path) -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            local_engine.running_engine(home).write_text(json.dumps({"engine": "local:1", **WIRE}))
        return looks > 1

    def too_late(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 1, stderr=b"dovetail: agents run here already")

    monkeypatch.setattr(local_engine, "is_running", is_running)
    monkeypatch.setattr(subprocess, "run", too_late)
    LocalEngine("local:1", folder).start_agents()
    assert looks == 4


def test_a_controller_that_sees_other_gpus_than_its_agents_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [TWO_GPUS]
    monkeypatch.setattr(local_engine, "gpus", lambda: GpuInventory(seen[0]))
    monkeypatch.setattr(local_engine, "is_running", lambda home: True)
    (folder / "nodes" / "0").mkdir(parents=True)
    local_engine.running_engine(folder).write_text(json.dumps({"engine": "local", **WIRE}))
    store_names(folder / "nodes" / "0", TWO_GPUS.names)
    LocalEngine("local", folder).start_agents()
    seen[0] = replace(TWO_GPUS, names=("GPU-1",))
    with pytest.raises(InputError, match="have GPU-0, GPU-1, not GPU-1"):
        LocalEngine("local", folder).start_agents()


@pytest.mark.parametrize("wire", [{}, {"wire": WIRE_VERSION + 1}])
def test_agents_of_another_version_are_refused_with_the_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, wire: dict[str, int]
) -> None:
    monkeypatch.setattr(local_engine, "is_running", lambda home: True)
    (folder / "nodes").mkdir()
    local_engine.running_engine(folder).write_text(json.dumps({"engine": "local:1", **wire}))
    with pytest.raises(InputError, match="another version") as refused:
        LocalEngine("local:1", folder).start_agents()
    assert "down --drain" in str(refused.value) and "nodes/agent.lock" in str(refused.value)
