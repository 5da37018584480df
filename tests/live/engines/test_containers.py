"""Jobs in containers: real ones of podman, and the command line of Apptainer."""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.core.errors import InputError
from dovetail.live.engines import containers, keeper_container
from dovetail.live.engines.cgroup import MEMORY, SHARE, ControlGroups
from dovetail.live.engines.containers import Containers, ContainerSpec, apptainer, podman
from dovetail.live.engines.devices import Devices, slots
from dovetail.live.engines.local import LocalProcessSettings
from dovetail.live.engines.processes import OUT_OF_MEMORY, ProcessLauncher
from dovetail.live.engines.site_scripts import FILE as SITE
from dovetail.live.engines.site_scripts import write_site
from dovetail.live.node.launcher import NEVER_RUNS, NOT_NOW, LaunchError, StartDeferred, WorkerExit
from dovetail.wire.agent import StartWorker
from dovetail.wire.site import SiteSettings
from dovetail.wire.spec import Mount
from dovetail.wire.terminal import (
    DONE,
    ERROR_OUTPUT,
    EXIT,
    INPUT,
    INPUT_END,
    OUTPUT,
    Attach,
    attach,
    exit_of,
    frame,
)
from keeper_line import line_of
from patience import FOR_EVER_S, until
from podman_here import MOUNTS, podman_here
from podman_here import containers as listed

NO_GROUPS = ControlGroups(0, None, None)
GPU = Devices(("GPU-aa", "GPU-bb"), "nvidia-h100-80gb", 80 << 30)
PROGRAM = ContainerSpec(
    "nvcr.io#nvidia/pytorch:24.01",
    ("python", "train.py", "--name", "a b"),
    "/work",
    {"A": "1", "LD_PRELOAD": "x.so"},
    (Mount("/data, all", "/data", read_only=True),),
    (("/home/jobs/7", "/home/jobs/7"),),
    ("GPU-aa",),
    "dovetail-1",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder; whatever still runs from it is killed."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    yield path
    with closing(ProcessLauncher(path / "0" / "workers")) as launcher:
        for found in launcher.adopt():
            launcher.signal(found.order.job, found.order.worker, signal.SIGKILL)
        until(lambda: (launcher.poll(), not launcher.alive)[1])
    shutil.rmtree(path)


@pytest.fixture
def rootfs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return podman_here(folder, monkeypatch)


@pytest.fixture
def groups() -> Iterator[ControlGroups]:
    made = ControlGroups.below_own(f"dovetail-test-{os.getpid()}")
    yield made
    made.close()


def launcher_in(folder: Path, groups: ControlGroups = NO_GROUPS) -> ProcessLauncher:
    setting = LocalProcessSettings(slots(2), folder / "0" / "agent.sock", groups)
    return ProcessLauncher(folder / "0" / "workers", setting)


def order(folder: Path, rootfs: Path, *command: str, **values: Any) -> StartWorker:
    paths = (str(folder / "job"), str(folder / "out"), str(folder / "w"))
    (folder / "w").mkdir(exist_ok=True)
    image: dict[str, Any] = {"container_image": str(rootfs), "container_mounts": MOUNTS}
    return replace(StartWorker(7, 0, 1, 0, command, *paths), **image | values)


def start(launcher: ProcessLauncher, it: StartWorker) -> None:
    """Starts a worker once podman is ready."""

    def started() -> bool:
        try:
            launcher.start(it, "secret", 0.0)
        except StartDeferred:
            return False
        return True

    until(started)


def printed(folder: Path) -> str:
    return (folder / "out").read_text() if (folder / "out").exists() else ""


def end_of(launcher: ProcessLauncher) -> WorkerExit:
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    return ends[0]


def run(
    folder: Path, rootfs: Path, *command: str, groups: ControlGroups = NO_GROUPS, **values: Any
) -> tuple[WorkerExit, str]:
    """Runs a program in a container to its end; returns that and what it printed."""
    with closing(launcher_in(folder, groups)) as launcher:
        start(launcher, order(folder, rootfs, *command, **values))
        end = end_of(launcher)
    return end, (folder / "out").read_text()


SEEN = """
import json, os
print(json.dumps({
    "root": sorted(os.listdir("/")), "environment": dict(os.environ), "folder": os.getcwd(),
    "cores": sorted(os.sched_getaffinity(0)), "groups": open("/proc/self/cgroup").read(),
    "user": [os.getuid(), os.getgid()], "network": os.readlink("/proc/self/ns/net"),
    "processes": os.readlink("/proc/self/ns/pid"),
}))
open("written", "w").write("here")
"""


def test_a_program_in_a_container_has_what_it_has_outside(
    folder: Path, rootfs: Path, groups: ControlGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_AGENT", "1")
    own = (("SECRET", "with a\nline"), ("PATH", "/usr/local/bin:/usr/bin"))
    command = (str(Path(sys.executable).resolve()), "-c", SEEN)
    end, text = run(folder, rootfs, *command, groups=groups, environment=own, distributed=True)
    assert end == WorkerExit(7, 0, 0), text
    seen = json.loads(text)
    assert "work" not in seen["root"] and "usr" in seen["root"], "the root is the image's"
    environment = seen["environment"]
    assert environment["SECRET"] == "with a\nline" and environment["PATH"] == own[1][1]
    assert environment["DOVETAIL_JOB"] == "7" and environment["RANK"] == "0"
    assert "OF_THE_AGENT" not in environment and "CONTAINERS_CONF" not in environment
    assert seen["folder"] == str(folder / "w") and (folder / "w" / "written").read_text() == "here"
    assert seen["cores"] == sorted(slots(2).cores[0])
    assert seen["user"] == [os.geteuid(), os.getegid()]
    assert seen["network"] == os.readlink("/proc/self/ns/net")
    assert seen["processes"] != os.readlink("/proc/self/ns/pid")
    if groups.enforces & {SHARE, MEMORY}:
        assert f"/dovetail-test-{os.getpid()}/7-0" in seen["groups"]
    assert listed() == []


@pytest.mark.parametrize(
    ("program", "code"),
    [("exit 7", 7), ("kill -USR1 $$", -signal.SIGUSR1), ("kill -KILL $$", -signal.SIGKILL)],
)
def test_exit_codes_and_signals_come_through(
    folder: Path, rootfs: Path, program: str, code: int
) -> None:
    assert run(folder, rootfs, "sh", "-c", program)[0] == WorkerExit(7, 0, code)


def test_sigterm_reaches_the_program_and_sigkill_what_ignores_it(
    folder: Path, rootfs: Path
) -> None:
    ready = "echo ready; while :; do sleep 0.05; done"
    with closing(launcher_in(folder)) as launcher:
        for worker, trap in enumerate(("exit 3", "")):
            (folder / "out").unlink(missing_ok=True)
            command = ("sh", "-c", f"trap '{trap}' TERM; {ready}")
            start(launcher, replace(order(folder, rootfs, *command), worker=worker))
            until(lambda: "ready" in printed(folder))
            launcher.signal(7, worker, signal.SIGTERM)
            if not trap:
                assert len(listed()) == 1, "it ignores that"
                launcher.signal(7, worker, signal.SIGKILL)
            assert end_of(launcher) == WorkerExit(7, worker, 3 if trap else -signal.SIGKILL)
            assert listed() == []


def test_a_program_without_a_handler_ends_by_sigterm(folder: Path, rootfs: Path) -> None:
    if not containers._has_init():
        pytest.skip("catatonit is not installed")
    with closing(launcher_in(folder)) as launcher:
        start(launcher, order(folder, rootfs, "sh", "-c", f"echo ready; exec sleep {FOR_EVER_S}"))
        until(lambda: "ready" in printed(folder))
        launcher.signal(7, 0, signal.SIGTERM)
        assert end_of(launcher) == WorkerExit(7, 0, -signal.SIGTERM)


def test_over_its_memory_a_container_is_killed_and_the_end_says_so(
    folder: Path, rootfs: Path, groups: ControlGroups
) -> None:
    if MEMORY not in groups.enforces:
        pytest.skip("no control group of memory can be made here")
    hog = "hog = []\nwhile True: hog.append(bytearray(8 << 20))"
    command = (str(Path(sys.executable).resolve()), "-c", hog)
    end, _ = run(folder, rootfs, *command, groups=groups, memory_bytes=64 << 20)
    assert end == WorkerExit(7, 0, -9, OUT_OF_MEMORY)


def test_the_container_of_a_killed_keeper_and_agent_is_removed_by_the_next_agent(
    folder: Path, rootfs: Path
) -> None:
    first = launcher_in(folder)
    start(first, order(folder, rootfs, "sh", "-c", f"echo ready; sleep {FOR_EVER_S}; true"))
    until(lambda: "ready" in printed(folder))
    first.close()
    worker = folder / "0" / "workers" / "7-0"
    inside = int((worker / "container.pid").read_text())
    os.kill(json.loads((worker / "keeper.json").read_text())["pid"], signal.SIGKILL)
    assert len(listed()) == 1
    with closing(launcher_in(folder)) as later:
        (adopted,) = later.adopt()
        end = adopted.exit or end_of(later)
    assert end.exit_code == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{inside}").exists())
    assert listed() == []


def test_what_cannot_be_started_was_never_executed_and_says_why(folder: Path, rootfs: Path) -> None:
    end, _ = run(folder, rootfs, "true", container_mounts=(Mount("/no/such", "/data"),))
    assert end.exit_code == NOT_NOW and "/no/such" in end.why
    sif = replace(order(folder, rootfs, "true"), worker=1, container_image="/image.sif")
    with (
        closing(launcher_in(folder)) as launcher,
        pytest.raises(LaunchError, match="podman runs a root file system"),
    ):
        start(launcher, sif)


def test_a_broken_podman_is_told_before_any_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "podman").write_text("#!/bin/sh\necho no storage >&2\nexit 125\n")
    (tmp_path / "podman").chmod(0o755)
    here = Containers(tmp_path / "0" / "agent.sock")

    whys: list[str] = []

    def is_told() -> bool:
        try:
            whys.append(here.must_wait())
        except LaunchError as error:
            whys.append(f"{error} ({error.exit_code})")
        return whys[-1] != "podman is getting ready"

    until(is_told)
    assert whys[-1] == f"podman cannot run containers here: no storage ({NOT_NOW})"


def test_the_site_chooses_the_runtime_and_else_what_is_found_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    here = Containers(tmp_path / "0" / "agent.sock")
    with pytest.raises(LaunchError, match="podman or apptainer is not installed") as none:
        here.command(PROGRAM, tmp_path)
    assert none.value.exit_code in NEVER_RUNS
    with pytest.raises(InputError, match="apptainer is not installed here"):
        containers.check_choice("apptainer")
    for name in ("podman", "apptainer"):
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(0o755)
    for choice, found in (("auto", "podman"), ("apptainer", "apptainer"), ("podman", "podman")):
        write_site(SiteSettings(container_runtime=choice), tmp_path / SITE)
        assert here.command(PROGRAM, tmp_path).argv[0] == str(tmp_path / "bin" / found)


def test_podman_gets_gpus_by_cdi_and_values_that_it_obeys_on_its_command_line() -> None:
    command = podman("/usr/bin/podman", PROGRAM, "/w/container.pid")
    assert command.argv[:3] == ("/usr/bin/podman", "run", "--rm")
    assert "--device=nvidia.com/gpu=GPU-aa" in command.argv
    assert "--env=A" in command.argv and "--env=LD_PRELOAD=x.so" in command.argv
    assert command.environment == {"A": "1"}
    assert '--mount=type=bind,"source=/data, all",destination=/data,ro' in command.argv
    image = command.argv.index("nvcr.io/nvidia/pytorch:24.01")
    assert command.argv[image + 1 :] == PROGRAM.command
    assert command.removal[-1] == "dovetail-1"


def test_a_gpu_worker_with_a_share_sees_its_gpu_and_mps_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_has_init", lambda: True)
    monkeypatch.setattr(containers.shutil, "which", lambda name, path="": f"/usr/bin/{name}")
    (tmp_path / "control").touch()
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "OF_THE_AGENT": "1"}
    setting = LocalProcessSettings(GPU, tmp_path / "agent.sock", NO_GROUPS, environ)
    it = StartWorker(7, 0, 1, 1, ("x",), "/job", "/job/out", "/work", container_image="image")
    prepared = setting.prepare(replace(it, share=0.5), "secret", tmp_path)
    assert "--device=nvidia.com/gpu=GPU-bb" in prepared["argv"]
    assert f"--mount=type=bind,source={tmp_path},destination={tmp_path}" in prepared["argv"]
    assert prepared["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-bb"
    assert prepared["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert "--env=OF_THE_AGENT" not in prepared["argv"] and "--init" in prepared["argv"]


def test_apptainer_gets_exactly_its_documented_options() -> None:
    assert apptainer("/usr/bin/apptainer", PROGRAM).argv == (
        *("/usr/bin/apptainer", "exec", "--cleanenv", "--no-eval", "--writable-tmpfs"),
        *("--pwd", "/work", "--nv"),
        *("--mount", "type=bind,source=/work,destination=/work"),
        *("--mount", "type=bind,source=/home/jobs/7,destination=/home/jobs/7"),
        *("--mount", 'type=bind,"source=/data, all",destination=/data,ro'),
        *("docker://nvcr.io/nvidia/pytorch:24.01", "python", "train.py", "--name", "a b"),
    )
    command = apptainer("apptainer", replace(PROGRAM, image="/images/a.sif", gpus=()))
    assert "--nv" not in command.argv and "/images/a.sif" in command.argv
    assert command.environment == {"APPTAINERENV_A": "1", "APPTAINERENV_LD_PRELOAD": "x.so"}
    assert command.removal == () and command.began == ""


def test_the_word_of_the_job_goes_before_our_mounts() -> None:
    job = replace(PROGRAM, mounts=(Mount("/elsewhere", "/work"),))
    assert Mount("/elsewhere", "/work") in job.all_mounts()
    assert Mount("/work", "/work") not in job.all_mounts()


def test_a_container_finds_the_socket_of_a_later_agent(tmp_path: Path) -> None:
    agent = tmp_path / "agent.sock"
    agent.touch()
    containers.reopen_door(agent)
    assert not (tmp_path / containers.DOOR).exists(), "no container was ever started"
    door = containers.open_door(agent)
    assert (door / "agent.sock").samefile(agent)
    agent.unlink()
    agent.touch()
    containers.reopen_door(agent)
    assert (door / "agent.sock").samefile(agent) and [*door.iterdir()] == [door / "agent.sock"]


def test_an_interactive_program_in_a_container_has_a_terminal_of_the_clients_size(
    folder: Path, rootfs: Path
) -> None:
    with closing(launcher_in(folder)) as launcher:
        program = "echo ready; read word; echo $word; stty size; exit 7"
        start(launcher, order(folder, rootfs, "sh", "-c", program, terminal="pty"))
        place = launcher.terminal(7, 0)
        assert place is not None
        line = line_of(place).say(attach(Attach(b"k" * 16, 0, 31, 97)))
        said = b""
        while b"ready" not in said:
            said += line.until(OUTPUT).content
        line.say(frame(INPUT, b"typed\n"))
        while (found := line.until(OUTPUT, EXIT)).kind == OUTPUT:
            said += found.content
        line.say(frame(DONE)).link.close()
        assert exit_of(found.content) == 7
        # Typed keys are echoed once: by the terminal inside, while the one outside is raw.
        assert said.split() == [b"ready", b"typed", b"typed", b"31", b"97"]
        assert end_of(launcher) == WorkerExit(7, 0, 7)


@pytest.mark.slow
def test_an_interactive_program_in_a_container_has_two_outputs_and_the_end_of_its_input(
    folder: Path, rootfs: Path
) -> None:
    with closing(launcher_in(folder)) as launcher:
        program = "cat; echo bad >&2"
        start(launcher, order(folder, rootfs, "sh", "-c", program, terminal="pipes"))
        place = launcher.terminal(7, 0)
        assert place is not None
        line = line_of(place).say(attach(Attach(b"k" * 16, 0)))
        line.say(frame(INPUT, b"some\n"), frame(INPUT_END))
        said = {OUTPUT: b"", ERROR_OUTPUT: b""}
        while (found := line.until(OUTPUT, ERROR_OUTPUT, EXIT)).kind != EXIT:
            said[found.kind] += found.content
        line.say(frame(DONE)).link.close()
        assert exit_of(found.content) == 0
        assert said == {OUTPUT: b"some\n", ERROR_OUTPUT: b"bad\n"}
        assert end_of(launcher) == WorkerExit(7, 0, 0)


def test_a_runtime_that_hangs_does_not_keep_the_end_of_a_worker_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_container, "REMOVAL_S", 0.0)
    removal = {"removal": [shutil.which("sleep"), FOR_EVER_S], "environment": {}}
    (tmp_path / "order.json").write_text(json.dumps(removal))
    assert not containers.ContainerRelease().is_removing(tmp_path)
    keeper_container.remove_container(removal)  # type: ignore[arg-type]
