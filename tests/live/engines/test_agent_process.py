"""The process of the agents, for real: called, left, killed, found again, taken down."""

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.edges.protocols import Incoming, NodeLost
from dovetail.live.edges.wall_clock import WallClock
from dovetail.live.emulation.synthetic import SyntheticSpec
from dovetail.live.engines.local_engine import LocalEngine, is_running
from dovetail.live.engines.worker_hub import HELLO_WITHIN_S
from dovetail.live.node.agent_link import AgentLink
from dovetail.live.node.transport import TO_AGENTS, Dismiss
from dovetail.live.system import unix_socket
from dovetail.wire.agent import (
    AgentOrder,
    AgentReport,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
)
from dovetail.wire.worker import (
    FROM_WORKER,
    TO_WORKER,
    Checkpoint,
    Entered,
    Hello,
    Ready,
    Regroup,
    WorkerRefused,
)
from patience import FOR_EVER_S, PATIENCE_S, is_there, until

POLITE_S = float(FOR_EVER_S)
"""A grace that is over for nobody, however late it hears of its end."""


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    path.chmod(0o700)
    yield path
    LocalEngine("local:1", path).stop_agents(end=True)
    shutil.rmtree(path)


class Caller:
    """A controller that remembers what came in."""

    def __init__(self, home: Path, text: str = "local:2", epoch: int = 1, **given: object) -> None:
        self.home, self.epoch = home, epoch
        self.engine = LocalEngine(text, home, given)
        self.engine.start_agents()
        self.come: queue.Queue[Incoming] = queue.Queue()
        self.post = self.engine.connect(self.come.put, WallClock())

    def __enter__(self) -> "Caller":
        self.send(hail=InventoryRequest(self.epoch))
        self.inventory = self.hear("inventory")
        return self

    def __exit__(self, *_: object) -> None:
        self.post.close()

    def send(self, node: int = 0, **order: object) -> None:
        self.post.send(node, AgentOrder(self.epoch, **order))  # type: ignore[arg-type]

    def hear(self, what: str, **fields: object) -> object:
        """Returns the next report of a kind (of a said message: its field) with these fields."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            report = self.come.get(timeout=max(0.01, give_up_s - time.monotonic()))
            if isinstance(report, AgentReport):
                found = getattr(report, what, None) or getattr(report.said, what, None)
                if found and all(getattr(found, k) == v for k, v in fields.items()):
                    return found

    def exit_codes(self) -> dict[int, int | None]:
        """Returns how workers ended, as the agent says now."""
        self.send(hail=InventoryRequest(self.epoch))
        return {s.worker: s.exit_code for s in self.hear("inventory").workers}  # type: ignore[attr-defined]

    def start(self, *command: str, worker: int = 0, trains: bool = False) -> None:
        job = self.home / "jobs" / "1"
        output = str(job / "output.log")
        launch = (command, str(job), output, str(self.home))
        self.send(start=StartWorker(1, worker, 1, worker, *launch, trains=trains))
        self.hear("started", worker=worker)


def test_a_worker_lives_through_its_controllers(home: Path) -> None:
    with Caller(home) as first:
        first.start("sleep", FOR_EVER_S)
    with Caller(home, epoch=2) as second:
        (state,) = second.inventory.workers  # type: ignore[attr-defined]
        assert (state.job, state.worker, state.exit_code) == (1, 0, None)
        second.epoch = 1
        second.send(end=EndWorker(1, 0, 0.0))
        second.epoch = 2
        second.send(hail=InventoryRequest(2))
        (state,) = second.hear("inventory").workers  # type: ignore[attr-defined]
        assert state.exit_code is None, "an older controller is not obeyed"
        second.send(end=EndWorker(1, 0, POLITE_S))
        assert second.hear("ended").exit_code == -signal.SIGTERM  # type: ignore[attr-defined]


def test_agents_killed_by_sigkill_are_replaced_and_workers_found_again(home: Path) -> None:
    with Caller(home) as first:
        first.start("sleep", FOR_EVER_S)
        first.start("sh", "-c", "sleep 0.5; exit 9", worker=1)
        os.kill(agents_of(home), signal.SIGKILL)
        while not isinstance(first.come.get(timeout=PATIENCE_S), NodeLost):
            pass
        # Nobody but the link notices, and brings new agents up.
        inventory = first.hear("inventory")
        assert inventory.incarnation != first.inventory.incarnation  # type: ignore[attr-defined]
        until(lambda: first.exit_codes() == {0: None, 1: 9})
        first.start("sleep", FOR_EVER_S)
        assert len(list((home / "nodes" / "0" / "workers").iterdir())) == 2
        first.send(end=EndWorker(1, 0, 0.0))
        assert first.hear("ended", worker=0).exit_code == -9  # type: ignore[attr-defined]
        first.send(forget=Forget(1, 0))
        first.send(forget=Forget(1, 1))
        until(lambda: not list((home / "nodes" / "0" / "workers").iterdir()))


def agents_of(home: Path) -> int:
    text = (home / "nodes" / "agent.log").read_text()
    return int(text.rsplit("(process ", 1)[1].split(")")[0])


def test_a_polite_end_of_the_agents_leaves_workers(home: Path) -> None:
    with Caller(home) as caller:
        caller.start("sleep", FOR_EVER_S)
    # Now that no link brings agents up again.
    os.kill(agents_of(home), signal.SIGTERM)
    until(lambda: not is_running(home))
    with Caller(home, epoch=2) as again:
        (state,) = again.inventory.workers  # type: ignore[attr-defined]
        assert state.exit_code is None


def test_taking_down_ends_workers_first(home: Path) -> None:
    with Caller(home) as caller:
        caller.start(
            sys.executable,
            "-c",
            f"import os, time; print(os.getpid()); time.sleep({FOR_EVER_S})",
        )
        until(
            lambda: (
                (home / "jobs" / "1" / "output.log").exists()
                and (home / "jobs" / "1" / "output.log").read_text().endswith("\n")
            )
        )
    worker = int((home / "jobs" / "1" / "output.log").read_text())
    caller.engine.stop_agents(end=True)
    assert not is_running(home)
    assert not Path(f"/proc/{worker}").exists()
    assert not (home / "nodes" / "agents.sock").exists()


def test_a_folder_that_is_gone_ends_everything(home: Path) -> None:
    with Caller(home) as caller:
        caller.start("sh", "-c", f"echo runs; exec sleep {FOR_EVER_S}")
        # By then all files are there that the start of a worker makes.
        until(
            lambda: (
                (home / "jobs" / "1" / "output.log").exists()
                and (home / "jobs" / "1" / "output.log").read_text()
            )
        )
        process = agents_of(home)
        # Gone at once: nobody makes anything in what is half removed.
        gone = home.rename(home.with_suffix(".gone"))
        until(lambda: not is_there(process))
    shutil.rmtree(gone)
    home.mkdir(mode=0o700)


class Worker:
    """A worker of the training side, as far as the agent sees one."""

    def __init__(self, home: Path, number: int, token: str, generation: int = -1) -> None:
        hello = Hello(f"1/{number}", token, 1, generation)
        while not self._call(home / "nodes" / "0" / "agent.sock", hello):
            self.close()

    def _call(self, path: Path, hello: Hello) -> bool:
        """Tells whether it said who it is in time: a busy machine may come between."""
        called_s = time.monotonic()
        self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.link.settimeout(PATIENCE_S)
        self.link.connect(str(path))
        self.file = self.link.makefile("rb")
        with suppress(BrokenPipeError, ConnectionResetError):
            self.say(hello)
        return time.monotonic() < called_s + HELLO_WITHIN_S

    def say(self, message: object) -> None:
        self.link.sendall(FROM_WORKER.encode(message))

    def hear(self) -> object:
        return TO_WORKER.decode(self.file.readline())

    def close(self) -> None:
        self.file.close()
        self.link.close()


def token_of(home: Path) -> str:
    """Returns the secret of the worker that tells it."""
    until((home / "token").exists)
    return (home / "token").read_text()


TELL = f'printf %s "$DOVETAIL_TOKEN" > new && mv new token && exec sleep {FOR_EVER_S}'
TELLS_TOKEN = ("sh", "-c", TELL)


def test_workers_and_controller_talk_through_the_agent(home: Path) -> None:
    with Caller(home) as caller:
        caller.start(*TELLS_TOKEN, trains=True)
        caller.send(tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
        caller.send(hail=InventoryRequest(1))
        caller.hear("inventory")
        worker = Worker(home, 0, token_of(home))
        assert worker.hear() == Regroup(1, (0,)), "what came before it listened is told then"
        worker.say(Ready(1))
        worker.say(Entered(1, 0, 0))
        assert caller.hear("entered") == Entered(1, 0, 0)
        caller.send(tell=NotifyWorkers(1, (0,), checkpoint=Checkpoint()))
        assert worker.hear() == Checkpoint()
        again = Worker(home, 0, token_of(home), generation=1)
        assert again.hear() == Checkpoint(), "said again, for nothing was saved yet"
        worker.close()
        again.close()


SAYS_AND_ENDS = """
import os, socket, sys, time
token, worker = os.environ["DOVETAIL_TOKEN"], os.environ["DOVETAIL_WORKER"]
said = '{"m":"Hello","worker":"%s","token":"%s","pid":1}' % (worker, token)
said += '\\n' + '{"m":"Ready","generation":1}\\n' * 500
said += '{"m":"Finished","step":1,"samples":2}\\n'
late = True
while late:  # Who is kept from saying who it is for too long is hung up on, and calls again.
    called_s = time.monotonic()
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(os.environ["DOVETAIL_SOCKET"])
    try:
        link.sendall(said.encode())
    except OSError:
        pass
    late = time.monotonic() > called_s + float(sys.argv[1])
os._exit(0)
"""


def test_last_words_come_before_the_end(home: Path) -> None:
    with Caller(home) as caller:
        says_and_ends = (sys.executable, "-S", "-c", SAYS_AND_ENDS, str(HELLO_WITHIN_S))
        for worker in range(2):
            caller.start(*says_and_ends, worker=worker, trains=True)
        order: list[tuple[int, str]] = []
        # On a busy machine an end is said again before the other worker has come to its own.
        while len({worker for worker, what in order if what == "ended"}) < 2:
            report = caller.come.get(timeout=PATIENCE_S)
            if isinstance(report, AgentReport) and report.ended is not None:
                order.append((report.ended.worker, "ended"))
            elif isinstance(report, AgentReport) and report.said and report.said.finished:
                order.append((report.said.worker, "finished"))
        for worker in range(2):
            said = dict.fromkeys(what for w, what in order if w == worker)
            assert list(said) == ["finished", "ended"]


def test_a_stranger_is_refused_and_told_so(home: Path) -> None:
    with Caller(home) as caller:
        caller.start(*TELLS_TOKEN, trains=True)
        token = token_of(home)
        for number, secret in ((0, "wrong"), (0, ""), (1, token)):
            stranger = Worker(home, number, secret)
            assert isinstance(stranger.hear(), WorkerRefused)
            assert stranger.file.readline() == b""
            stranger.close()


def babble(worker: Worker) -> None:
    """Says more than anybody would read, until nobody listens."""
    with suppress(OSError):
        while True:
            worker.link.sendall(FROM_WORKER.encode(Ready(1)) * 1000)


def test_a_babbling_worker_and_a_deaf_one_delay_nobody(home: Path) -> None:
    with Caller(home) as caller:
        caller.start(*TELLS_TOKEN, trains=True)
        babbler = Worker(home, 0, token_of(home))
        babbles = threading.Thread(target=babble, args=(babbler,), daemon=True)
        babbles.start()
        caller.hear("ready")
        caller.send(hail=InventoryRequest(1))
        caller.hear("inventory")
        assert babbles.is_alive(), "the controller was answered meanwhile"
        nonsense = Worker(home, 0, token_of(home))
        nonsense.link.sendall(b"{}\n")
        assert nonsense.file.readline() == b"", "who speaks nonsense is not listened to"
        babbles.join(PATIENCE_S)
        assert not babbles.is_alive(), "a worker has one line"
        babbler.close()
        nonsense.close()


def test_emulated_nodes_run_faster_than_time(home: Path) -> None:
    given = {"switching": "none", "physics": "linear"}
    length_s = 10 * round(PATIENCE_S)
    with Caller(home, "emulated:2x2@5000", **given) as caller:
        launch = (SyntheticSpec(length_s).command(), str(home / "jobs" / "1"), "", "")
        began_s = time.monotonic()
        caller.send(1, start=StartWorker(1, 0, 1, 0, *launch, trains=True))
        caller.send(1, tell=NotifyWorkers(1, (0,), regroup=Regroup(1, (0,))))
        # It is heard within the patience of this test, a tenth of the job's own time.
        assert caller.hear("finished").samples == 1000 * length_s  # type: ignore[attr-defined]
        assert time.monotonic() - began_s >= length_s / 5000
        with pytest.raises(InputError, match="emulated:2x2@5000"):
            LocalEngine("local:1", home).start_agents()
        with pytest.raises(InputError, match="options"):
            LocalEngine("emulated:2x2@5000", home, {"switching": "restart:3"}).start_agents()


def test_a_link_to_nobody_loses_orders_and_closes(home: Path) -> None:
    come: list[Incoming] = []
    link = AgentLink(home / "nodes" / "agents.sock", range(1), come.append)
    link.send(0, AgentOrder(1, hail=InventoryRequest(1)))
    link.close()
    assert come == []


def test_a_dismissal_waits_for_agents_that_are_just_coming_up(home: Path) -> None:
    tried = threading.Event()
    link = AgentLink(home / "agents.sock", range(1), lambda incoming: None, tried.set)
    link.dismiss(7.0)
    assert tried.wait(PATIENCE_S)
    with unix_socket.listen(home / "agents.sock") as listener:
        listener.settimeout(PATIENCE_S)
        with listener.accept()[0] as agents, agents.makefile("rb") as said:
            assert TO_AGENTS.decode(said.readline()) == Dismiss(7.0)
            link.close()


def test_a_home_that_others_may_enter_is_refused(home: Path) -> None:
    home.chmod(0o755)
    with pytest.raises(InputError, match="chmod 700"):
        LocalEngine("local:1", home).start_agents()
    home.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_home_of_another_user_is_refused(home: Path) -> None:
    os.chown(home, 12345, -1)
    with pytest.raises(InputError, match="another user"):
        LocalEngine("local:1", home).start_agents()
    os.chown(home, 0, -1)


def test_agents_run_once(home: Path) -> None:
    with Caller(home):
        command = [
            sys.executable,
            "-m",
            "dovetail",
            "local-agents",
            "--daemon",
            "--engine",
            "local:1",
        ]
        again = subprocess.run([*command, "--home", str(home)], capture_output=True, check=False)
    assert again.returncode == 1 and b"agents run here already" in again.stderr


def test_a_path_too_long_for_a_socket_is_refused() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d" * 90) as deep:
        engine = LocalEngine("local:1", Path(deep))
        with pytest.raises(DovetailError, match="use a shorter --home"):
            engine.start_agents()
