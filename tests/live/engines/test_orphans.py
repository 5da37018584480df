"""Orphans of a worker: what it forked and did not wait for is reaped, and killed with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.engines import keeper, orphans
from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.devices import Devices, slots
from dovetail.live.engines.local import LocalProcessSettings
from dovetail.live.engines.processes import LOST, ProcessLauncher
from dovetail.live.node.launcher import WorkerExit
from dovetail.wire.agent import StartWorker
from patience import FOR_EVER_S, is_there, until

ORPHANS = """
import os, sys, time
for number in range(int(sys.argv[1])):
    if os.fork() == 0:
        if os.fork() == 0 and sys.argv[2] == 'sleep':
            time.sleep(3600)
        os._exit(0)
    os.wait()
open('there', 'w').close()
time.sleep(3600)
"""

KILLS = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import keeper

def fork(depth):
    if os.fork() == 0:
        os.setsid()
        if depth > 1:
            fork(depth - 1)
        os.write(there, b'.')
        time.sleep(3600)

told, there = os.pipe()
keeper.prctl(keeper.PR_SET_CHILD_SUBREAPER, 1)
wide, deep, listed, others = map(int, sys.argv[2:])
for number in range(wide):
    fork(deep)
for number in range(wide * deep):
    os.read(told, 1)
counts = {'scans': 0, 'kills': 0}
scan, kill = keeper.children if listed else keeper.children_by_parent, keeper.kill
def children():
    counts['scans'] += 1
    return scan()
def counted_kill(pid):
    counts['kills'] += 1
    return not others and kill(pid)
keeper.children, keeper.kill, keeper.RESCAN_S = children, counted_kill, 3600.0
keeper.kill_orphans()
print(json.dumps(counts | {'left': scan()}))
for pid in scan():
    kill(pid)
"""

HIDES = """
import os, resource, signal, time
read, write = os.pipe()
keeper = os.getppid()
if os.fork() == 0:
    os.setsid()
    resource.setrlimit(10, (1000, 1000))
    if os.fork():
        os._exit(0)
    open('hidden', 'w').write(str(os.getpid()))
    os.write(write, b'.')
    time.sleep(3600)
os.read(read, 1)
os.kill(keeper, signal.SIGKILL)
time.sleep(3600)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[ProcessLauncher]:
    made = ProcessLauncher(tmp_path / "workers")
    yield made
    for job, worker in list(made._kept):
        made.signal(job, worker, signal.SIGKILL)
    until(lambda: (made.poll(), not made.alive)[1])


def started(launcher: ProcessLauncher, folder: Path, *arguments: str) -> int:
    """Starts a worker that forks orphans; returns its keeper when all of them are forked."""
    command = (sys.executable, "-c", ORPHANS, *arguments)
    launch = (command, str(folder / "job"), str(folder / "out.log"), str(folder))
    launcher.start(StartWorker(7, 0, 1, 0, *launch), "t", 0.0)
    until((folder / "there").exists)
    return int(json.loads((folder / "workers" / "7-0" / "keeper.json").read_bytes())["pid"])


def children_of(process: int) -> list[str]:
    """Returns the states of the children of a process, as `ps` has them."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            state, parent = keeper.stat_of(int(name))[:2]
        except OSError:
            continue
        if int(parent) == process:
            found.append(state)
    return found


def killed(*, wide: int, deep: int = 1, listed: bool = True, others: bool = False) -> dict:  # type: ignore[type-arg]
    """Returns what it took a keeper to kill so many trees of orphans, each so deep."""
    words = [str(int(word)) for word in (wide, deep, listed, others)]
    engines = str(Path(keeper.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", KILLS, engines, *words], capture_output=True, check=True
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_orphans_are_reaped_as_they_exit(tmp_path: Path, launcher: ProcessLauncher) -> None:
    process = started(launcher, tmp_path, "50", "exit")
    until(lambda: len(children_of(process)) == 1, lambda: f"left: {children_of(process)}")
    assert launcher.poll() == [], "the worker itself runs on"


def test_living_orphans_end_with_their_worker(tmp_path: Path, launcher: ProcessLauncher) -> None:
    process = started(launcher, tmp_path, "50", "sleep")
    assert len(children_of(process)) == 51
    launcher.signal(7, 0, signal.SIGKILL)
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    assert ends == [WorkerExit(7, 0, -signal.SIGKILL)] and children_of(process) == []


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("wide", [10, 200])
def test_the_scans_for_orphans_do_not_grow_with_their_number(wide: int, listed: bool) -> None:
    done = killed(wide=wide, listed=listed)
    assert done["left"] == [] and done["kills"] == wide
    assert done["scans"] <= 2, "a scan for each process makes the end quadratic"


def test_a_tree_of_orphans_costs_a_scan_for_each_level(tmp_path: Path) -> None:
    done = killed(wide=5, deep=6)
    assert done["left"] == [] and done["kills"] == 5 * 6
    assert done["scans"] <= 6 + 1


def test_a_keeper_does_not_wait_for_processes_of_other_users() -> None:
    done = killed(wide=3, others=True)
    assert len(done["left"]) == 3 and done["kills"] == 3


def test_both_ways_to_find_children_agree() -> None:
    child = subprocess.Popen(["sleep", FOR_EVER_S])
    try:
        assert child.pid in keeper.children_by_parent()
        assert sorted(keeper.children()) == sorted(keeper.children_by_parent())
    finally:
        child.kill()
        child.wait()


def test_the_exit_status_is_on_disk_before_orphans_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper may be killed at any instant: what frees the GPU comes when nothing is left."""
    seen: list[tuple[bool, bool]] = []

    class Ended:
        def run(self, order: object) -> tuple[str, int]:
            return "", 3 << 8

        def finish(self, order: object, code: int) -> None:
            assert code == 3

    def kill_orphans() -> None:
        seen.append(((tmp_path / keeper.STATUS).exists(), (tmp_path / keeper.EXIT).exists()))

    monkeypatch.setattr(keeper, "Keeper", Ended)
    monkeypatch.setattr(keeper, "kill_orphans", kill_orphans)
    monkeypatch.setattr(keeper, "prctl", lambda option, value: None)
    keeper.write(str(tmp_path), "order.json", {})
    with (tmp_path / "lock").open("w") as lock:
        keeper.main(str(tmp_path), lock.fileno())
    assert seen == [(True, False)]
    ends = [json.loads((tmp_path / name).read_bytes()) for name in (keeper.STATUS, keeper.EXIT)]
    assert ends == [{"exit_code": 3, "why": ""}] * 2


def test_a_keeper_killed_while_it_ends_orphans_has_kept_the_exit_status(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    process = started(launcher, tmp_path, "1", "exit")
    folder = tmp_path / "workers" / "7-0"
    keeper.write(str(folder), keeper.STATUS, {"exit_code": 3, "why": ""})
    os.kill(process, signal.SIGKILL)
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    assert ends == [WorkerExit(7, 0, 3)]


@pytest.mark.parametrize("devices", [slots(1), Devices(("GPU-0",), "h100", 80 << 30)])
def test_a_process_that_hides_from_its_keeper_is_found_by_its_control_group(
    tmp_path: Path, devices: Devices
) -> None:
    groups = ControlGroups.below_own(f"dovetail-test-{os.getpid()}")
    if groups.tracking is None:
        pytest.skip("no control group can be made here")
    launcher = ProcessLauncher(
        tmp_path / "workers", LocalProcessSettings(devices, tmp_path / "agent.sock", groups)
    )
    command = (sys.executable, "-c", HIDES)
    launch = (command, str(tmp_path), str(tmp_path / "out.log"), str(tmp_path))
    launcher.start(StartWorker(7, 0, 1, 0, *launch), "t", 0.0)
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    hidden = int((tmp_path / "hidden").read_text())
    try:
        assert ends == [WorkerExit(7, 0, -9, LOST)] and not is_there(hidden)
        assert not (groups.tracking / "7-0").exists(), "its group is removed with it"
    finally:
        if is_there(hidden):
            os.kill(hidden, signal.SIGKILL)
        launcher.close()
        groups.close()


def test_a_process_is_killed_only_where_it_is_in_the_group_that_lists_it(tmp_path: Path) -> None:
    """A number that was read may be another process's by now."""
    group = tmp_path / "dovetail-test" / "7-0"
    group.mkdir(parents=True)
    child = subprocess.Popen(["sleep", FOR_EVER_S])
    try:
        (group / "cgroup.procs").write_text(f"0\n{child.pid}\n")
        assert orphans.kill_in_groups([str(group / "cgroup.procs")]) is False
        assert is_there(child.pid)
    finally:
        child.kill()
        child.wait()
