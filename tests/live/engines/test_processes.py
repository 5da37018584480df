"""Real processes on this machine: started, ended, survived, found again."""

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.files.whole_file import write_whole
from dovetail.live.engines import keeper, last_output, orphans, processes
from dovetail.live.engines.processes import LOST, OUT_OF_MEMORY, ProcessLauncher, ProcessSettings
from dovetail.live.node.agent import Agent
from dovetail.live.node.launcher import (
    NEVER_RUNS,
    NOT_NOW,
    AdoptedWorker,
    DiskFull,
    LaunchError,
    StartDeferred,
    WorkerExit,
)
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.wire.agent import AgentOrder, EndWorker, Forget, InventoryRequest, StartWorker
from dovetail.wire.worker import Entered, Finished
from out_of_memory_texts import NO_ROOM, OTHERS
from patience import FOR_EVER_S, is_there, until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder; whatever still runs from it is killed."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    yield path
    for workers in {order.parent.parent for order in path.glob("*/*/order.json")}:
        launcher = ProcessLauncher(workers)
        for found in launcher.adopt():
            launcher.signal(found.order.job, found.order.worker, signal.SIGKILL)
        until(lambda one=launcher: (one.poll(), not one.alive)[1])  # type: ignore[misc]
    shutil.rmtree(path)


def order(folder: Path, *command: str, worker: int = 0, generation: int = 1) -> StartWorker:
    launch = (command, str(folder / "job"), str(folder / "out.log"), str(folder))
    return StartWorker(7, worker, generation, 0, *launch)


def python(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", text


def end_of(launcher: ProcessLauncher) -> WorkerExit:
    ends: list[WorkerExit] = []
    until(lambda: ends.extend(launcher.poll()) or ends)
    return ends[0]


def test_a_worker_runs_and_its_exit_code_is_told(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, *python("print('hello'); raise SystemExit(7)")), "t", 0.0)
    assert end_of(launcher) == WorkerExit(7, 0, 7)
    written = [p for p in (folder / "workers" / "7-0").iterdir() if p.suffix == ".json"]
    assert len(written) == 4 and not any(p.stat().st_mode & 0o077 for p in written)
    assert (folder / "out.log").read_text() == "hello\n"
    assert launcher.poll() == []


def raising(text: str) -> tuple[str, str, str]:
    """Returns a program that knows nothing of us and fails with what a library writes."""
    return python(f"import sys; sys.stderr.write('Traceback\\n' + {text!r} + '\\n'); sys.exit(1)")


def test_a_program_whose_gpu_has_no_room_is_known_by_its_last_words(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    for worker, text in enumerate((*NO_ROOM.values(), *OTHERS.values())):
        launcher.start(order(folder, *raising(text), worker=worker), "t", 0.0)
        why = OUT_OF_MEMORY if worker < len(NO_ROOM) else ""
        # Each reads its own words alone, though all write into one file.
        assert end_of(launcher) == WorkerExit(7, worker, 1, why)


def test_words_of_no_room_count_only_at_the_end_of_a_program_that_failed(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    words = "CUDA out of memory"
    kept_going = f"print({words!r}); print('smaller batch\\n' * 100, flush=True); "
    for worker, (rest, code) in enumerate(
        (("raise SystemExit(1)", 1), ("raise SystemExit(0)", 0), ("1/0", 1))
    ):
        launcher.start(order(folder, *python(kept_going + rest), worker=worker), "t", 0.0)
        assert end_of(launcher) == WorkerExit(7, worker, code)
    killed = f"import os; print({words!r}, flush=True); os.kill(os.getpid(), 9)"
    launcher.start(order(folder, *python(killed), worker=3), "t", 0.0)
    assert end_of(launcher) == WorkerExit(7, 3, -signal.SIGKILL)


def test_strange_words_arrive_as_they_are(folder: Path) -> None:
    strange = ["; rm -rf /", "$(id)", "a\nb", "'\"", "`x`", "*", "", "\\", "ä€", "--", "-c", "a b"]
    launcher = ProcessLauncher(folder / "workers")
    command = python("import sys; open('words', 'w').write(repr(sys.argv[1:]))")
    launcher.start(order(folder, *command, *strange), "t", 0.0)
    assert end_of(launcher).exit_code == 0
    assert (folder / "words").read_text() == repr(strange)


def test_output_is_appended_and_never_through_a_link(folder: Path) -> None:
    (folder / "out.log").write_text("before\n")
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, "echo", "after"), "t", 0.0)
    end_of(launcher)
    assert (folder / "out.log").read_text() == "before\nafter\n"
    (folder / "out.log").unlink()
    (folder / "out.log").symlink_to(folder / "elsewhere")
    launcher.start(order(folder, "echo", "after", worker=1), "t", 0.0)
    end = end_of(launcher)
    assert (
        end.exit_code == keeper.CANNOT_RUN and "out.log" not in end.why
    ) or "symbolic" in end.why
    assert not (folder / "elsewhere").exists()


def test_no_output_goes_into_the_folder_of_the_cluster(folder: Path) -> None:
    """It led elsewhere when the job was submitted: a link in its path has changed since."""
    home, link = folder / "home", folder / "link"
    (home / "deep").mkdir(parents=True)
    (home / "token").write_text("secret")
    launcher = ProcessLauncher(home / "nodes" / "0" / "workers", home=home)
    for worker, name in enumerate(("token", "new.log", "deep/new.log")):
        link.symlink_to(home)
        start = order(folder, "echo", "here", worker=worker)
        start = replace(start, output=str(link / name))
        launcher.start(start, "t", 0.0)
        end = end_of(launcher)
        assert end.exit_code == keeper.CANNOT_RUN and "folder of the cluster" in end.why
        link.unlink()
    assert (home / "token").read_text() == "secret" and list((home / "deep").iterdir()) == []
    assert not (home / "new.log").exists()


def test_the_output_of_a_job_may_go_into_its_own_folder(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "nodes" / "0" / "workers", home=folder)
    start = order(folder, "echo", "here")
    start = replace(start, output=str(folder / "job" / "output.log"))
    launcher.start(start, "t", 0.0)
    assert end_of(launcher).exit_code == 0
    assert (folder / "job" / "output.log").read_text() == "here\n"


@pytest.mark.parametrize(
    ("command", "code"), [(("no-such-program",), 127), (("/",), 126), (("./out.log",), 126)]
)
def test_a_program_that_cannot_run_says_why(
    folder: Path, command: tuple[str, ...], code: int
) -> None:
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, *command), "t", 0.0)
    end = end_of(launcher)
    assert end.exit_code == code and end.why
    assert code in NEVER_RUNS and end.why.startswith(command[0]) and "Errno" not in end.why
    assert (folder / "out.log").read_text() == f"dovetail: {end.why}\n"


def test_a_node_without_the_working_directory_says_so(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    missing = folder / "missing"
    launcher.start(replace(order(folder, "true"), workdir=str(missing)), "t", 0.0)
    end = end_of(launcher)
    assert end.exit_code == 127
    assert end.why == f"{missing}: no such working directory here"


def test_a_program_that_cannot_run_just_now_is_told_apart(folder: Path) -> None:
    with open(folder / "busy", "w") as file:
        os.chmod(folder / "busy", 0o700)
        file.write("#!/bin/sh\n")
        file.flush()
        launcher = ProcessLauncher(folder / "workers")
        launcher.start(order(folder, "./busy"), "t", 0.0)
        end = end_of(launcher)
    assert end.exit_code == NOT_NOW == keeper.NOT_NOW and "busy" in end.why


def test_a_folder_that_cannot_be_made_is_a_launch_error(folder: Path) -> None:
    (folder / "job").write_text("in the way")
    launcher = ProcessLauncher(folder / "workers")
    with pytest.raises(LaunchError, match="job"):
        launcher.start(order(folder, "true"), "t", 0.0)


class FullDisk:
    """Writes of keepers, or of orders, that fail for want of room, a few times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, times: int, why: int = errno.ENOSPC
    ) -> None:
        self._write, self._left, self._why = keeper.write, times, why
        self.waits = 0
        monkeypatch.setattr(keeper, "write", self.write)
        monkeypatch.setattr(processes, "write_whole", self.write_whole)
        monkeypatch.setattr(keeper, "time", SimpleNamespace(sleep=self.wait))

    def write(self, folder: str, name: str, what: dict[str, Any]) -> None:
        self._fail()
        self._write(folder, name, what)

    def write_whole(self, path: Path, content: str, **how: Any) -> None:
        self._fail()
        write_whole(path, content, **how)

    def _fail(self) -> None:
        if self._left:
            self._left -= 1
            raise OSError(self._why, os.strerror(self._why))

    def wait(self, seconds: float) -> None:
        self.waits += 1


def test_a_worker_that_finds_no_room_is_not_started_and_can_be_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = ProcessLauncher(folder / "workers")
    with monkeypatch.context() as patch:
        FullDisk(patch, times=1)
        with pytest.raises(DiskFull):
            launcher.start(order(folder, "true"), "t", 0.0)
    assert list((folder / "workers").iterdir()) == []
    launcher.start(order(folder, "true"), "t", 0.0)
    assert end_of(launcher).exit_code == 0


def test_an_end_is_put_on_record_when_there_is_room_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch, times=3)
    keeper.write_when_room(str(folder), "exit.json", {"exit_code": 0})
    assert json.loads((folder / "exit.json").read_bytes()) == {"exit_code": 0}
    assert disk.waits == 3


def test_an_end_that_can_never_be_put_on_record_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FullDisk(monkeypatch, times=3, why=errno.ENOENT)
    with pytest.raises(FileNotFoundError):
        keeper.write_when_room(str(folder), "exit.json", {"exit_code": 0})


def test_a_polite_end_reaches_the_worker(folder: Path) -> None:
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "open('there', 'w').close()\n"
        "time.sleep(3600)"
    )
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, *python(text)), "t", 0.0)
    until((folder / "there").exists)
    launcher.signal(7, 0, signal.SIGTERM)
    assert end_of(launcher).exit_code == 3


def test_an_end_right_after_the_start_is_not_lost(folder: Path) -> None:
    for worker, number in enumerate((signal.SIGTERM, signal.SIGKILL) * 3):
        launcher = ProcessLauncher(folder / f"w{worker}")
        launcher.start(order(folder, "sleep", FOR_EVER_S, worker=worker), "t", 0.0)
        time.sleep(0.01 * worker)
        launcher.signal(7, worker, number)
        assert end_of(launcher).exit_code == -number


def test_a_worker_that_ignores_sigterm_is_killed_after_its_grace(folder: Path) -> None:
    text = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('there', 'w').close()\n"
        "time.sleep(3600)"
    )
    agent = Agent(0, ("slot",), ProcessLauncher(folder / "workers"))
    agent.handle(AgentOrder(1, start=order(folder, *python(text))), time.monotonic())
    until((folder / "there").exists)
    asked_s = time.monotonic()
    agent.handle(AgentOrder(1, end=EndWorker(7, 0, 0.3)), asked_s)
    reports = []
    until(lambda: reports.extend(agent.tick(time.monotonic())) or reports)
    assert reports[0].ended is not None and reports[0].ended.exit_code == -signal.SIGKILL
    assert time.monotonic() - asked_s >= 0.3


FORKS = """
import os, sys, time
names = ('child-False', 'child-True')
for leaves in (False, True):
    if os.fork() == 0:
        if leaves:
            os.setsid()
            if os.fork():
                os._exit(0)
        with open(f'child-{leaves}.new', 'w') as file:
            file.write(str(os.getpid()))
        os.rename(f'child-{leaves}.new', f'child-{leaves}')
        time.sleep(3600)
while sys.argv[1] == 'stays' or not all(map(os.path.exists, names)):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("manner", ["ends", "stays"])
def test_all_children_die_with_a_worker_wherever_they_went(folder: Path, manner: str) -> None:
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, *python(FORKS), manner), "t", 0.0)
    files = [folder / "child-False", folder / "child-True"]
    until(lambda: all(f.exists() for f in files))
    if manner == "stays":
        launcher.signal(7, 0, signal.SIGKILL)
    assert end_of(launcher).exit_code == (-9 if manner == "stays" else 0)
    for file in files:
        assert not Path(f"/proc/{file.read_text()}").exists(), "not even a zombie is left"


def agent_that_dies(folder: Path, start: StartWorker) -> int:
    """Starts a worker from a process of its own, which is then killed; returns its number."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            agent = Agent(0, ("slot",), ProcessLauncher(folder / "workers"))
            agent.handle(AgentOrder(1, start=start), 5.0)
            agent.receive(7, 0, Entered(1, 10, 100), 6.0)
            os.write(write, b"started")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(write)
    assert os.read(read, 7) == b"started"
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def test_a_new_agent_finds_a_worker_that_runs_and_ends_it(folder: Path) -> None:
    agent_that_dies(folder, order(folder, "sleep", FOR_EVER_S))
    agent = Agent(0, ("slot",), ProcessLauncher(folder / "workers"))
    (report,) = agent.handle(AgentOrder(2, hail=InventoryRequest(2)), 0.0)
    assert report.inventory is not None
    (state,) = report.inventory.workers
    assert (state.job, state.worker, state.exit_code, state.started_s) == (7, 0, None, 5.0)
    assert state.entered == 1

    again = agent.handle(AgentOrder(2, start=order(folder, "sleep", FOR_EVER_S)), 0.0)
    assert again[0].started is not None, "it runs already: nothing is started twice"
    assert len(list((folder / "workers").iterdir())) == 1
    agent.handle(AgentOrder(2, end=EndWorker(7, 0, 5.0)), 0.0)
    reports = []
    until(lambda: reports.extend(agent.tick(1.0)) or reports)
    assert reports[0].ended is not None and reports[0].ended.exit_code == -signal.SIGTERM
    agent.handle(AgentOrder(2, forget=Forget(7, 0)), 2.0)
    assert list((folder / "workers").iterdir()) == []


def test_a_new_agent_knows_by_which_limits_a_worker_goes(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    first = order(folder, "sleep", FOR_EVER_S)
    launcher.start(first, "t", 5.0)
    newer = replace(first, generation=3, share=0.5, memory_bytes=1 << 30)
    launcher.limit(newer)
    launcher.close()
    told: list[StartWorker] = []
    setting = ProcessSettings()
    setting.limit = told.append  # type: ignore[method-assign]
    (found,) = ProcessLauncher(folder / "workers", setting).adopt()
    assert (found.order, found.token, found.started_s) == (newer, "t", 5.0)
    assert told == [newer], "the agent before may have died between the word and the deed"


def test_a_keeper_is_ready_for_signals_before_it_says_who_it_is(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    for worker in range(5):
        launcher.start(order(folder, "sleep", FOR_EVER_S, worker=worker), "t", 0.0)
        told = folder / "workers" / f"7-{worker}" / "keeper.json"
        until(told.exists)
        os.kill(json.loads(told.read_bytes())["pid"], signal.SIGTERM)
        assert end_of(launcher).exit_code == -signal.SIGTERM
        assert (told.parent / "exit.json").exists(), "the keeper lived to tell"


def test_a_new_agent_learns_how_a_worker_ended_meanwhile(folder: Path) -> None:
    text = "import time; time.sleep(0.3); raise SystemExit(5)"
    agent_that_dies(folder, order(folder, *python(text)))
    until((folder / "workers" / "7-0" / "exit.json").exists)
    launcher = ProcessLauncher(folder / "workers")
    found = launcher.adopt()
    until(lambda: found[0].exit or launcher.poll())
    again = ProcessLauncher(folder / "workers").adopt()
    assert [f.exit for f in again] == [WorkerExit(7, 0, 5)]
    assert again[0].said == (Entered(1, 10, 100),)


def test_a_worker_whose_folder_was_moved_ends_in_no_other_of_its_name(folder: Path) -> None:
    """A cluster is removed and made anew, and its first job has the name of the first before."""
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, "sleep", FOR_EVER_S), "t", 0.0)
    process = keeper_of(folder, "7-0")
    (folder / "workers").rename(folder / "moved")
    (folder / "workers" / "7-0").mkdir(parents=True)
    launcher.signal(7, 0, signal.SIGKILL)
    until(lambda: not is_there(process))
    assert list((folder / "workers" / "7-0").iterdir()) == []
    said = json.loads((folder / "moved" / "7-0" / "exit.json").read_bytes())
    assert said["exit_code"] == -signal.SIGKILL
    assert end_of(launcher).exit_code == -signal.SIGKILL


def test_a_worker_whose_keeper_was_killed_is_gone_and_said_to_be(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    text = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(3600)"
    launcher.start(order(folder, *python(text)), "t", 0.0)
    until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    child = int((folder / "pid").read_text())
    os.kill(keeper_of(folder, "7-0"), signal.SIGKILL)
    assert end_of(launcher) == WorkerExit(7, 0, -9, LOST)
    until(lambda: not is_there(child))


ESCAPES = """
import os, sys, time
def stay(name):
    open(name + '.new', 'w').write(str(os.getpid()))
    os.rename(name + '.new', name)
    time.sleep(3600)
if sys.argv[1:]:
    stay(sys.argv[1])
for name in ('forked', 'detached', 'disguised'):
    if os.fork() == 0:
        if name != 'forked':
            os.setsid()
            if os.fork():
                os._exit(0)
        if name == 'disguised':
            os.closerange(0, 100)
            os.execve(sys.executable, [sys.executable, 'escapes.py', name], {})
        stay(name)
stay('worker')
"""
ESCAPED = ("worker", "forked", "detached", "disguised")


def escape(folder: Path) -> tuple[StartWorker, Callable[[], list[int]]]:
    """Returns a worker that leaves processes wherever it can, and what says who they are."""
    (folder / "escapes.py").write_text(ESCAPES)

    def there() -> list[int]:
        until(lambda: all((folder / name).exists() for name in ESCAPED))
        return [int((folder / name).read_text()) for name in ESCAPED]

    return order(folder, sys.executable, "escapes.py"), there


def test_nothing_that_a_worker_forked_outlives_a_keeper_that_is_killed(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    start, there = escape(folder)
    launcher.start(start, "t", 0.0)
    launcher.start(order(folder, "sleep", FOR_EVER_S, worker=1), "t", 0.0)
    processes = there()
    os.kill(keeper_of(folder, "7-0"), signal.SIGKILL)
    assert end_of(launcher) == WorkerExit(7, 0, -9, LOST)
    assert not any(is_there(p) for p in processes), "the end was told while something still ran"
    assert launcher.poll() == [] and launcher.alive == 1, "the other worker is nobody's stray"
    launcher.close()


@pytest.mark.parametrize("keeper_first", [True, False])
def test_nothing_is_left_when_an_agent_and_a_keeper_are_killed(
    folder: Path, keeper_first: bool
) -> None:
    start, there = escape(folder)
    agent_that_dies(folder, start)
    processes = there()
    if keeper_first:
        os.kill(keeper_of(folder, "7-0"), signal.SIGKILL)
        until(lambda: not is_there(processes[0]))  # The worker itself needs nobody for that.
        assert any(is_there(p) for p in processes)
    agent = Agent(0, ("slot",), ProcessLauncher(folder / "workers"))
    if not keeper_first:
        os.kill(keeper_of(folder, "7-0"), signal.SIGKILL)
    (report,) = agent.handle(AgentOrder(2, hail=InventoryRequest(2)), 0.0)
    assert report.inventory is not None
    (state,) = report.inventory.workers
    assert state.exit_code is None, "its processes are there, so its GPU is not free"
    reports = []
    until(lambda: reports.extend(agent.tick(1.0)) or reports)
    assert reports[0].ended is not None and reports[0].ended.exit_code == -signal.SIGKILL
    assert not any(is_there(p) for p in processes)


def test_a_mark_is_another_for_each_worker_and_none_where_locks_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = [orphans.new_mark() for _ in range(100)]
    assert len(set(marks)) == 100 and min(marks) >= orphans.LOWEST
    monkeypatch.setattr(resource, "getrlimit", lambda what: (orphans.LOWEST, orphans.LOWEST))
    assert orphans.new_mark() == orphans.UNMARKED
    assert not orphans.kill_marked(orphans.UNMARKED), "it is borne by everybody"


def test_a_worker_of_another_release_is_ended_and_cleared_away(folder: Path) -> None:
    agent_that_dies(folder, order(folder, "sleep", FOR_EVER_S))
    path = folder / "workers" / "7-0"
    process = keeper_of(folder, "7-0")  # It has read its order by now.
    written = json.loads((path / "order.json").read_bytes())
    written["start"]["unheard_of"] = 1
    (path / "order.json").write_text(json.dumps(written))
    assert ProcessLauncher(folder / "workers").adopt() == []
    until(lambda: not is_there(process))
    assert json.loads((path / "exit.json").read_bytes())["exit_code"] == -signal.SIGKILL
    assert ProcessLauncher(folder / "workers").adopt() == []
    assert not path.exists()


def test_an_order_that_cannot_be_read_just_now_is_no_reason_to_forget_a_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_that_dies(folder, order(folder, "sleep", FOR_EVER_S))

    def fails(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            ProcessLauncher(folder / "workers").adopt()
    assert len(ProcessLauncher(folder / "workers").adopt()) == 1


def keeper_of(folder: Path, name: str) -> int:
    said = folder / "workers" / name / "keeper.json"
    until(said.exists)
    return int(json.loads(said.read_text())["pid"])


def test_another_process_with_the_number_of_a_keeper_is_left_alone(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, "sleep", FOR_EVER_S), "t", 0.0)
    until((folder / "workers" / "7-0" / "keeper.json").exists)
    os.kill(keeper_of(folder, "7-0"), signal.SIGKILL)
    end_of(launcher)
    # The number is given to a stranger; the folder's lock is held, as if by a keeper's fork.
    keeper.write(str(folder / "workers" / "7-0"), "keeper.json", {"pid": os.getpid(), "start": "1"})
    lock = os.open(folder / "workers" / "7-0" / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (found,) = ProcessLauncher(folder / "workers").adopt()
    os.close(lock)
    assert isinstance(found, AdoptedWorker) and found.exit == WorkerExit(7, 0, -9, LOST)


def test_a_worker_whose_keeper_was_given_up_never_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent died when it had just started it, and the machine is too busy to let it begin."""
    path = folder / "workers" / "7-0"
    launcher = ProcessLauncher(folder / "workers")
    launcher._write(path, order(folder, "touch", "ran"), "t", 0.0)
    monkeypatch.setattr(processes, "NAMED_WITHIN_S", 0.0)
    with (path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,) = launcher.adopt()
        assert found.exit == WorkerExit(7, 0, -9, LOST)
        monkeypatch.setattr(keeper, "Keeper", lambda: None)
        keeper.main(str(path), lock.fileno())
    assert not (path / "exit.json").exists() and not (folder / "ran").exists()


def test_keepers_without_a_name_hold_an_agent_up_once_and_a_full_disk_does_not_end_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = ProcessLauncher(folder / "workers")
    paths = [folder / "workers" / f"7-{worker}" for worker in range(3)]
    for worker, path in enumerate(paths):
        launcher._write(path, order(folder, "true", worker=worker), "t", 0.0)
    locks = [(path / "lock").open("w") for path in paths]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    # A clock that only sleep moves, and a disk that is full at the first try.
    slept, tried = [0.0], list[str]()
    clock = SimpleNamespace(
        monotonic=lambda: slept[0], sleep=lambda s: slept.__setitem__(0, slept[0] + max(s, 1.0))
    )
    monkeypatch.setattr(processes, "time", clock)
    begins = keeper.claim_start

    def full_at_first(path: str) -> bool:
        tried.append(path)
        if len(tried) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return begins(path)

    monkeypatch.setattr(keeper, "claim_start", full_at_first)
    found = launcher.adopt()
    assert [one.exit for one in found] == [WorkerExit(7, worker, -9, LOST) for worker in range(3)]
    assert tried == [str(paths[0])] + [str(path) for path in paths]
    assert processes.NAMED_WITHIN_S <= slept[0] < processes.NAMED_WITHIN_S + 5
    for lock in locks:
        lock.close()


def test_a_stopped_worker_and_a_stopped_keeper_are_killed_all_the_same(folder: Path) -> None:
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, "sh", "-c", "kill -STOP $$; sleep 3600"), "t", 0.0)
    until((folder / "workers" / "7-0" / "keeper.json").exists)
    os.kill(keeper_of(folder, "7-0"), signal.SIGSTOP)
    launcher.signal(7, 0, signal.SIGKILL)
    assert end_of(launcher).exit_code == -signal.SIGKILL


def test_what_an_agent_began_to_write_is_no_worker(folder: Path) -> None:
    (folder / "workers" / "7-0").mkdir(parents=True)
    (folder / "workers" / "7-0" / ".order.json.0f9a").write_text('{"start": {"jo')
    assert ProcessLauncher(folder / "workers").adopt() == []
    assert list((folder / "workers").iterdir()) == []


def test_a_word_cut_off_by_a_crash_was_not_said(folder: Path) -> None:
    agent_that_dies(folder, order(folder, "sleep", FOR_EVER_S))
    said = folder / "workers" / "7-0" / "said"
    launcher = ProcessLauncher(folder / "workers")
    launcher.store(7, 0, Finished(20, 200))
    said.write_bytes(said.read_bytes() + b'{"m":"Finis')
    (found,) = launcher.adopt()
    assert found.said == (Entered(1, 10, 100), Finished(20, 200))


def test_the_environment_ordered_is_there_and_stdin_is_empty(folder: Path) -> None:
    text = "import os, sys; print(os.environ['WANTED'], repr(sys.stdin.read()), os.getcwd())"
    start = order(folder, *python(text))
    start = replace(start, environment=(("WANTED", "x y"),))
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(start, "t", 0.0)
    assert end_of(launcher).exit_code == 0
    assert (folder / "out.log").read_text() == f"x y '' {folder}\n"


def test_a_worker_has_no_files_but_its_own(folder: Path) -> None:
    """The lock of its keeper above all: it says that the keeper lives."""
    text = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    launcher = ProcessLauncher(folder / "workers")
    launcher.start(order(folder, *python(text)), "t", 0.0)
    assert end_of(launcher).exit_code == 0
    assert (folder / "out.log").read_text() == "['0', '1', '2']\n"


def test_a_folder_that_does_not_answer_defers_a_start_and_ends_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = ProcessLauncher(folder / "node" / "workers")
    launcher.start(order(folder, *python("import time; time.sleep(60)")), "t", 0.0)
    launcher._io = BoundedWait(0.05)
    answers, size = threading.Event(), last_output.output_size

    def hang(workdir: str, output: str) -> int:
        answers.wait()
        return size(workdir, output)

    monkeypatch.setattr(last_output, "output_size", hang)
    for _ in range(2):
        with pytest.raises(StartDeferred, match="job does not answer"):
            launcher.start(order(folder, *python("pass"), worker=1), "t", 0.0)
    launcher.warn(7, 0, "hello")
    assert launcher.poll() == [] and launcher.alive == 1
    answers.set()
    until(lambda: not launcher._io.hangs, lambda: "it came back")
    launcher.start(order(folder, *python("pass"), worker=1), "t", 0.0)
    assert launcher.alive == 2
    launcher.close()
