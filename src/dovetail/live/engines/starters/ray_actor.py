"""What runs on a node of a Ray cluster: an actor that starts the agent there.

The agent is no process of Ray's: it goes on when the actor or the raylet ends.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.join.word import JoinWord
from dovetail.live.system.daemon import RUNS_ALREADY
from dovetail.live.system.file_system import check_local

AGENT_S = 150.0
STARTED, RUNS, FAILED = "started", "runs", "failed"
FOLDERS = ".dovetail-agents"
"""In the home directory; below it a folder for each cluster and node."""
CLUSTER_LETTERS = 12
SWEPT = (
    "its raylet ends what workers leave behind; start it without"
    " RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper"
)


class AgentStarter:
    """Starts the agent of its node. Its methods are called through Ray."""

    def __init__(self) -> None:
        self._word: Path | None = None

    def ping(self) -> None:
        """Returns once the actor runs."""

    def start(self, word: str, name: str, slots: int) -> tuple[str, str]:
        """Returns how it went (`RUNS`: an agent was there already), and what to know about it."""
        try:
            join = JoinWord.parse(word, "the join word")
            environment = agent_environment()
            folder = agent_folder(environment, join.fingerprint, name)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._word = folder / "join"
            join.write(self._word)
            _be_as_raylet()
            command = [sys.executable, "-m", "dovetail", "agent", "--join", str(self._word)]
            command += ["--folder", str(folder), *(["--slots", str(slots)] if slots else [])]
            done = subprocess.run(
                [*command, "--daemon"],
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=AGENT_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, DovetailError) as error:
            return FAILED, str(error)
        if done.returncode == 0:
            return (FAILED, SWEPT) if _is_swept(folder) else (STARTED, "")
        if RUNS_ALREADY in done.stderr:
            return RUNS, f"{folder}/agent.log"
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = lines[-1].removeprefix("dovetail: ") if lines else f"exit code {done.returncode}"
        return FAILED, why

    def end(self) -> None:
        """Removes the join word: no agent is wanted here any more."""
        if self._word is not None:
            self._word.unlink(missing_ok=True)


def agent_folder(environment: Mapping[str, str], fingerprint: str, name: str) -> Path:
    """Returns the folder of an agent on a disk of this machine; clusters have folders of their own.

    It is in the home directory, or in /var/tmp where that is on another machine.
    """
    user = os.geteuid()
    place = Path(environment.get("HOME") or pwd.getpwuid(user).pw_dir) / FOLDERS
    try:
        check_local(place)
    except InputError:
        place = Path(f"/var/tmp/dovetail-{user}")
    return place / fingerprint[:CLUSTER_LETTERS] / name


def agent_environment() -> Mapping[str, str]:
    """Returns the environment that the raylet was started in, without what is Ray's.

    Ray sets OMP_NUM_THREADS and hides GPUs in its workers, which is meant for tasks of Ray.
    """
    text = Path(f"/proc/{_raylet()}/environ").read_bytes().decode("utf-8", "surrogateescape")
    pairs = dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
    return {name: value for name, value in pairs.items() if not name.startswith("RAY_")}


def _be_as_raylet() -> None:
    """Undoes what Ray sets in its workers, and processes started by them would inherit.

    They are the first to be killed when memory is short, run with a niceness of 15 (undone by root
    alone), and SIGINT is blocked.
    """
    raylet = _raylet()
    with suppress(OSError):
        score = Path(f"/proc/{raylet}/oom_score_adj").read_text(encoding="ascii")
        Path("/proc/self/oom_score_adj").write_text(score, encoding="ascii")
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, raylet))
    # Of this thread, from which the agent is forked.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _is_swept(folder: Path) -> bool:
    """True if the raylet has become the parent of an agent: it will end it with the next sweep."""
    with suppress(OSError, ValueError, IndexError):
        agent = int((folder / "agent.lock").read_text(encoding="ascii"))
        stat = Path(f"/proc/{agent}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1]) == os.getppid() != 1
    return False


def _raylet() -> int:
    """Returns the process that started this one; this one itself if it is the raylet no more."""
    parent = os.getppid()
    with suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text(encoding="utf-8").strip() == "raylet":
            return parent
    return os.getpid()
