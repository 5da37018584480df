"""`dovetail run`: what its user sees and types, with real terminals and real processes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.client.client import Client
from interactive_client import BetweenPipes, InTerminal
from patience import FOR_EVER_S, PATIENCE_S, is_there, until

BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")


class Cluster:
    """A cluster of this machine, whose controller and agents can be killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.client = Client(home, patience_s=PATIENCE_S)
        self.up()

    def up(self) -> None:
        """Starts the controller, and the agents if they do not run."""
        words = ["up", "--home", str(self.home), "--engine", "local:2", "--policy", "fifo"]
        subprocess.run([sys.executable, "-m", "dovetail", *words], check=True, capture_output=True)

    @property
    def controller(self) -> int:
        """The process of the controller."""
        return self.client.ping().pid

    @property
    def agent(self) -> int:
        """The process of the agents."""
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = place.read_bytes().split(b"\0")
                if b"local-agents" in words and os.fsencode(self.home) in words:
                    return int(place.parent.name)
        return 0

    def keeper(self, job: int) -> int:
        """The process of the keeper of a job's worker."""
        (folder,) = self.home.glob(f"nodes/0/workers/{job}-*")
        return int(json.loads((folder / "keeper.json").read_text())["pid"])

    def state(self, job: int) -> str:
        """Returns the state of a job."""
        return self.client.states(job)[0].state

    def close(self) -> None:
        """Ends all."""
        self.client.down()
        with suppress(OSError):
            os.kill(self.agent, signal.SIGTERM)
            until(lambda: not self.agent, lambda: "the agents do not end")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("run") / "home")
    yield made
    made.close()


@pytest.fixture
def shell(cluster: Cluster) -> Iterator[InTerminal]:
    made = InTerminal(cluster.home, *BASH, size=(31, 97))
    yield made
    made.close()


def test_a_shell_has_a_terminal_and_its_exit_code_is_that_of_the_command(
    cluster: Cluster, shell: InTerminal
) -> None:
    job = shell.job()
    assert shell.says("stty size") == "31 97"
    shell.resize(40, 120)
    until(lambda: shell.says("stty size") == "40 120")
    assert shell.says("tty").startswith("/dev/pts/")
    assert shell.says("echo $TERM $CUDA_VISIBLE_DEVICES$DOVETAIL_JOB") == f"xterm {job}"
    assert cluster.state(job) == "RUNNING"
    shell.type("exit 7\n")
    assert shell.end() == 7
    assert termios.tcgetattr(shell.ours) == shell.modes
    until(lambda: cluster.state(job) == "FAILED")
    assert cluster.client.show(job).row.exit_code == 7


def test_ctrl_c_is_for_the_foreground_process_and_ctrl_d_ends_the_shell(
    cluster: Cluster, shell: InTerminal
) -> None:
    job = shell.job()
    pid = shell.says("echo $$")
    # The program says so itself: before it has the terminal, the shell would get the signal.
    shell.type(f"sh -c 'echo be\"\"fore; exec sleep {FOR_EVER_S}'\n")
    shell.expect("before\r\n")
    shell.type("\x03")
    shell.type("echo code=$?,$$\n")
    shell.expect(f"code=130,{pid}")
    shell.type("\x04")
    # The exit code of a shell is that of its last command.
    assert shell.end() == 0
    until(lambda: cluster.state(job) == "COMPLETED")


def test_every_byte_travels_both_ways(cluster: Cluster) -> None:
    data = bytes(range(256)) * 64 + random.Random(5).randbytes(1 << 20)
    with BetweenPipes(cluster.home, "sh", "-c", "cat; cat no-such-file") as run:
        output, errors, code = run.rest(data)
    assert hashlib.sha256(output).digest() == hashlib.sha256(data).digest()
    assert b"no-such-file" in errors and code == 1


def memory_kib(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


LINES = """
import os
for at in range(5 * 1024):
    os.write(1, b"x" * 1023 + b"\\n")
    if at % 64 == 0:
        os.write(2, b".")
"""


def test_a_slow_reader_slows_the_program_down_and_no_memory_grows(cluster: Cluster) -> None:
    stands_still, written = 0, -1
    with BetweenPipes(cluster.home, sys.executable, "-c", LINES) as run:
        job = run.job()
        run.output.read(1)
        keeper = cluster.keeper(job)
        child = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0]
        processes = (keeper, cluster.agent, cluster.controller, run.process.pid)
        before = [memory_kib(p) for p in processes]

        def is_slowed_down() -> bool:
            nonlocal stands_still, written
            now = int(Path(f"/proc/{child}/io").read_text().partition("wchar:")[2].split()[0])
            stands_still, written = (stands_still + 1, written) if now == written else (0, now)
            return stands_still > 20

        until(is_slowed_down, lambda: "it writes on and on")
        assert written < 2 << 20, "what pipes, sockets and the window hold, and no more"
        after = [memory_kib(p) for p in processes]
        assert all(b - a < 3 << 10 for a, b in zip(before, after, strict=True)), (before, after)
        output, errors, code = run.rest()
    assert (1 + len(output), errors.count(b"."), code) == (5 << 20, 80, 0)


def test_the_job_ends_when_its_client_is_killed(cluster: Cluster, shell: InTerminal) -> None:
    job = shell.job()
    pid = int(shell.says("echo $$"))
    shell.process.kill()
    until(lambda: cluster.state(job) == "CANCELLED")
    assert not is_there(pid)
    assert "its client went away" in cluster.client.why(job).sentence


def test_a_session_goes_on_with_the_next_controller_and_the_next_agent(
    cluster: Cluster, shell: InTerminal
) -> None:
    job = shell.job()
    pid = shell.says("kept=yes; echo $$")
    os.kill(cluster.controller, signal.SIGKILL)
    shell.expect("trying again (Ctrl-C gives up)\r\n")
    cluster.up()
    shell.expect("connected again\r\n")
    assert shell.says("echo $$ $kept") == f"{pid} yes"
    os.kill(cluster.agent, signal.SIGKILL)
    shell.expect("trying again (Ctrl-C gives up)\r\n")
    shell.expect("connected again\r\n")
    assert shell.says("echo $$ $kept") == f"{pid} yes"
    assert cluster.state(job) == "RUNNING"
    shell.type("exit\n")
    assert shell.end() == 0


TRAPS = "trap 'echo interrupted' INT; trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"


def test_signals_are_passed_on_and_a_second_ctrl_c_cancels(cluster: Cluster) -> None:
    with BetweenPipes(cluster.home, "bash", "-c", TRAPS) as run:
        assert run.output.readline() == b"ready\n"
        run.process.send_signal(signal.SIGINT)
        assert run.output.readline() == b"interrupted\n"
        run.process.send_signal(signal.SIGUSR1)
        assert run.rest()[2] == 9
    with BetweenPipes(cluster.home, "bash", "-c", TRAPS) as run:
        job = run.job()
        assert run.output.readline() == b"ready\n"
        run.process.send_signal(signal.SIGINT)
        assert run.output.readline() == b"interrupted\n"
        run.process.send_signal(signal.SIGINT)
        assert run.rest()[2] == 130
    until(lambda: cluster.state(job) == "CANCELLED")


def test_a_job_that_waits_says_why_and_goes_with_its_client(cluster: Cluster) -> None:
    both = ("--gpus", "2")
    with BetweenPipes(cluster.home, "sleep", FOR_EVER_S, options=both) as first:
        one = first.job()
        until(lambda: cluster.state(one) == "RUNNING")
        with BetweenPipes(cluster.home, "true", options=both) as second:
            two = second.job()
            assert b"waits: it is next in the policy's order" in second.errors.readline()
        until(lambda: cluster.state(two) == "CANCELLED")
        cluster.client.cancel(one)
        _, errors, code = first.rest()
    assert code == 128 + signal.SIGTERM and b"is CANCELLED: cancelled by its owner" in errors


def test_cancel_hangs_a_shell_up_that_ignores_sigterm(cluster: Cluster, shell: InTerminal) -> None:
    job = shell.job()
    shell.says("true")
    cluster.client.cancel(job)
    # At once, though a shell ignores SIGTERM.
    assert shell.end() == 128 + signal.SIGHUP
    assert b"is CANCELLED: cancelled by its owner" in shell.seen


def test_a_client_that_is_told_to_end_restores_its_terminal(
    cluster: Cluster, shell: InTerminal
) -> None:
    job = shell.job()
    shell.says("true")
    shell.process.send_signal(signal.SIGTERM)
    assert shell.end() == 128 + signal.SIGTERM
    assert termios.tcgetattr(shell.ours) == shell.modes
    until(lambda: cluster.state(job) == "CANCELLED")


def test_what_interactive_jobs_are_not(cluster: Cluster) -> None:
    with BetweenPipes(cluster.home, "true", options=("--pty",)) as run:
        _, errors, code = run.rest()
    assert code == 2 and b"--pty: standard input is no terminal" in errors
    with BetweenPipes(cluster.home, "true", options=("--gpus", "1..2")) as run:
        _, errors, code = run.rest()
    assert code == 2 and b"an interactive job has one number of GPUs" in errors
    with BetweenPipes(cluster.home, "no-such-program") as run:
        job = run.job()
        _, errors, code = run.rest()
    assert code == 127 and b"no-such-program: No such file" in errors
    until(lambda: cluster.state(job) == "FAILED")
    with pytest.raises(InputError, match="it has ended with its terminal"):
        cluster.client.requeue(job)
    with pytest.raises(InputError, match="its output went to its client"):
        list(cluster.client.logs(job))
