"""Real processes, really killed: controller, agents and workers, with SIGKILL and SIGSTOP.

The thousands of orderings are played in virtual time (`test_nothing_lost.py`); here it is shown
that sockets, disks, process tables and `dovetail up` keep the same promises.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from dovetail.core.errors import DovetailError
from dovetail.live.client.client import Client
from dovetail.live.store.queries import StoreReader
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, is_there, until
from store_audit import audit
from store_reads import all_jobs

PATIENT = Path(__file__).parents[1] / "patient_dovetail.py"
"""`dovetail`, by which no job begins anew because its agent was kept from speaking."""

SLOTS = 3
WAITS = 'while [ ! -e "$0.go" ]; do sleep 0.1; done'


def commands(word: str, home: Path) -> list[int]:
    """Returns the processes that run a command of ours in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if word.encode() in words and os.fsencode(home) in words:
                    found.append(int(entry.name))
    return found


class Ground:
    """A cluster whose processes the test kills."""

    def __init__(self, home: Path, engine: str = f"local:{SLOTS}") -> None:
        self.home = home
        self.engine = engine
        self.client = Client(home, patience_s=PATIENCE_S)
        self.controller: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Starts a controller and waits until it answers."""
        words = ["up", "--foreground", "--engine", self.engine, "--home", str(self.home)]
        with (self.home / "said").open("ab") as said:
            self.controller = subprocess.Popen(
                [sys.executable, str(PATIENT), *words], stdout=said, stderr=said
            )
        self.until(self.answers, "a controller answers")

    def answers(self) -> bool:
        """Tells whether the controller that was started last answers."""
        assert self.controller is not None and self.controller.poll() is None, self.said()
        with suppress(DovetailError):
            return self.client.ping().pid == self.controller.pid
        return False

    def kill(self) -> None:
        """Kills the controller."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def said(self) -> str:
        """Returns what controllers and agents wrote."""
        files = (self.home / "said", self.home / "controller.log", self.home / "nodes/agent.log")
        return "\n".join(f.read_text() for f in files if f.exists())

    def until(self, true: Callable[[], object], what: str) -> None:
        """Waits until something is true."""
        until(true, lambda: f"never: {what}\n{self.said()}")

    def spec(self, name: str, wait: str = WAITS, **more: object) -> JobSpec:
        """Returns a job that writes down each start, with its process, and each end.

        In between it waits until it is told to `go_on`, or does something else.
        """
        trace = self.home / name
        work = f'echo $$ >> "$0.start"; {wait}; echo $$ >> "$0.end"'
        return JobSpec(name, ("/bin/sh", "-c", work, str(trace)), str(self.home), **more)  # type: ignore[arg-type]

    def go_on(self, name: str) -> None:
        """Lets a job end that waits to be told."""
        (self.home / f"{name}.go").touch()

    def processes(self, name: str, what: str = "start") -> list[int]:
        """Returns the processes that a job started (or ended) as."""
        trace = self.home / f"{name}.{what}"
        return [int(line) for line in trace.read_text().split()] if trace.exists() else []

    def started(self, name: str) -> int:
        """Returns the process of a job, once it runs."""
        self.until(lambda: self.processes(name), f"{name} runs")
        return self.processes(name)[-1]

    def check(self, told: dict[str, int]) -> None:
        """Holds the store against its promises."""
        with StoreReader(self.home / "store.db") as reader:
            assert audit(reader, acknowledged=tuple(told.values())) == []
            names = [job.spec.name for job in all_jobs(reader)]
        assert sorted(names) == sorted(set(names)), "a submit is on record twice"
        assert set(told) <= set(names)

    def end(self) -> None:
        """Leaves no process and no file behind."""
        if self.controller is not None and self.controller.poll() is None:
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
        # Agents whose folder is gone end their workers and themselves.
        try:
            until(
                lambda: not commands("local-agents", self.home),
                lambda: "agents outlive their folder",
            )
        finally:
            for process in commands("local-agents", self.home):
                os.kill(process, signal.SIGKILL)
            shutil.rmtree(self.home, ignore_errors=True)


@contextmanager
def made(*engine: str) -> Iterator[Ground]:
    """Yields a cluster of its own, and leaves nothing of it."""
    ground = Ground(Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp")), *engine)
    try:
        yield ground
    finally:
        ground.end()


@pytest.fixture
def ground() -> Iterator[Ground]:
    with made() as ground:
        yield ground


def submit_for_ever(ground: Ground, told: dict[str, int], stop: threading.Event) -> None:
    """Submits job after job, whatever happens to the controller; notes what was acknowledged."""
    # None is left unacknowledged in the end: it would run on while the records are held against
    # each other.
    client = Client(ground.home, patience_s=PATIENCE_S)
    count = 0
    while not stop.is_set():
        name = f"job{count}"
        # The key is the job's: asked again after a crash, the same request is meant.
        with suppress(DovetailError, OSError):
            (told[name],) = client.submit(ground.spec(name, "sleep 1.5"), key=name)
            count += 1
        stop.wait(0.25)


def keep_killing(ground: Ground, kills: int, seed: int) -> dict[str, int]:
    """Kills controllers at random instants while users submit; returns what was acknowledged."""
    rng = Random(seed)
    told: dict[str, int] = {}
    stop = threading.Event()
    ground.up()
    users = threading.Thread(target=submit_for_ever, args=(ground, told, stop))
    users.start()
    try:
        for _ in range(kills):
            sleep(rng.uniform(0.0, 1.0))
            ground.kill()
            ground.up()
        ground.until(lambda: len(told) >= kills, "jobs are accepted")
    finally:
        stop.set()
        users.join()
    return told


def hold_to_its_word(ground: Ground, kills: int, seed: int) -> None:
    told = keep_killing(ground, kills, seed)
    ends = ground.client.wait(*told.values(), timeout_s=PATIENCE_S + len(told))
    assert {e.state for e in ends} == {"COMPLETED"}
    for name in told:
        assert len(ground.processes(name)) == 1, f"{name} was started more than once"
        assert ground.processes(name) == ground.processes(name, "end")
    ground.check(told)


def test_a_controller_killed_again_and_again_loses_nothing_and_restarts_nobody(
    ground: Ground,
) -> None:
    hold_to_its_word(ground, kills=6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_dozens_of_kills_lose_nothing(ground: Ground, seed: int) -> None:
    hold_to_its_word(ground, kills=15, seed=100 + seed)


def test_workers_live_on_when_the_agent_is_killed(ground: Ground) -> None:
    ground.up()
    told = {"a": ground.client.submit(ground.spec("a"))[0]}
    process = ground.started("a")
    (agent,) = commands("local-agents", ground.home)
    os.kill(agent, signal.SIGKILL)
    ground.until(lambda: not is_there(agent), "the agent is gone")
    ground.kill()
    ground.up()
    ground.until(lambda: commands("local-agents", ground.home), "an agent is there again")
    assert is_there(process)
    ground.go_on("a")
    (end,) = ground.client.wait(*told.values(), timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED" and ground.processes("a") == [process]
    ground.check(told)


def test_a_worker_killed_runs_again_and_one_stopped_ends_at_its_limit(ground: Ground) -> None:
    ground.up()
    told = {
        "killed": ground.client.submit(ground.spec("killed"))[0],
        "stopped": ground.client.submit(
            ground.spec("stopped", "kill -STOP $$", time_limit_s=4.0, grace_s=1.0)
        )[0],
    }
    os.kill(ground.started("killed"), signal.SIGKILL)
    ground.until(lambda: len(ground.processes("killed")) == 2, "it runs again")
    ground.go_on("killed")
    killed, ended = ground.client.wait(*told.values(), timeout_s=PATIENCE_S)
    assert (killed.state, ended.state) == ("COMPLETED", "TIMEOUT")
    assert len(ground.processes("killed")) == 2 and len(ground.processes("killed", "end")) == 1
    # On a machine so busy that its time is over before it begins there is none.
    stopped = ground.processes("stopped")
    ground.until(lambda: not any(map(is_there, stopped)), "the stopped worker is gone")
    ground.check(told)


def test_a_cancelled_job_that_ignores_signals_is_gone_after_its_grace(ground: Ground) -> None:
    ground.up()
    told: dict[str, int] = {}
    for name, grace_s in (("short", 1.0), ("long", 3600.0)):
        spec = ground.spec(name, grace_s=grace_s)
        deaf = f"trap '' TERM; {spec.command[2]}"
        spec = replace(spec, command=(*spec.command[:2], deaf, spec.command[3]))
        (told[name],) = ground.client.submit(spec)
    short, long = ground.started("short"), ground.started("long")
    ground.kill()
    ground.up()
    asked = monotonic()
    ground.client.cancel(*told.values())
    ground.until(lambda: not is_there(short), "the cancelled worker is gone")
    assert monotonic() - asked > 0.9, "it had its grace"
    assert is_there(long), "and no more than that"
    os.kill(long, signal.SIGKILL)
    ends = ground.client.wait(*told.values(), timeout_s=PATIENCE_S)
    assert {end.state for end in ends} == {"CANCELLED"}
    ground.check(told)


def kill_while_the_agent_stands(ground: Ground, seed: int) -> None:
    """Kills the controller when a gang's orders are on their way to an agent that stands still."""
    rng = Random(seed)
    ground.up()
    # When this has run, the agent has said who is there: until then nothing is placed.
    told = {"first": ground.client.submit(ground.spec("first", "true"))[0]}
    ground.client.wait(*told.values(), timeout_s=PATIENCE_S)
    (agent,) = commands("local-agents", ground.home)
    os.kill(agent, signal.SIGSTOP)
    try:
        spec = ground.spec("gang", "sleep 0.5", gpus=2, min_gpus=2, max_gpus=2, ntasks=2)
        told["gang"] = ground.client.submit(spec)[0]
        show = ground.client.show
        ground.until(lambda: show(str(told["gang"])).row.state != "PENDING", "it is placed")
        sleep(rng.uniform(0.0, 0.1))
        ground.kill()
    finally:
        os.kill(agent, signal.SIGCONT)
    sleep(rng.choice((0.0, 1.5)))
    ground.up()
    (end,) = ground.client.wait(told["gang"], timeout_s=PATIENCE_S)
    assert end.state == "COMPLETED"
    ranks = ground.processes("gang")
    assert len(set(ranks)) == 2, "each rank ran once"
    assert sorted(ranks) == sorted(ground.processes("gang", "end"))
    assert facts_of(ground, told["gang"]) == ["submitted", "started", "ended"]
    ground.check(told)


def facts_of(ground: Ground, job: int) -> list[str]:
    """Returns what the event log has of a job, without what it measured."""
    kinds = [str(json.loads(event.line)["e"]) for event in ground.client.history(job)]
    return [kind for kind in kinds if kind != "measured"]


def test_a_gang_runs_once_whose_controller_was_killed_while_its_agent_stood_still(
    ground: Ground,
) -> None:
    kill_while_the_agent_stands(ground, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_twenty_gangs_run_once_whose_agents_stood_still(ground: Ground, seed: int) -> None:
    kill_while_the_agent_stands(ground, seed=100 + seed)


def leave_fast_nodes_alone(seed: int, away_s: float) -> None:
    """Lets jobs end at 2000 times the machine's speed while no controller runs."""
    rng = Random(seed)
    with made("emulated:4x8@2000") as ground:
        ground.up()
        spec = JobSpec("fast", (), str(ground.home), duration_s=4000.0, paced=True)
        jobs = ground.client.submit(*[spec] * 32)
        show = ground.client.show
        ground.until(lambda: show(str(jobs[-1])).row.state != "PENDING", "all are placed")
        sleep(rng.uniform(0.0, 0.5))
        ground.kill()
        sleep(away_s)
        ground.up()
        ends = ground.client.wait(*jobs, timeout_s=PATIENCE_S)
        assert {end.state for end in ends} == {"COMPLETED"}
        assert {node.state for node in ground.client.nodes().nodes} == {"up"}
        for job in jobs:
            assert facts_of(ground, job) == ["submitted", "started", "ended"]


def test_jobs_of_fast_nodes_that_ended_in_an_absence_are_found_ended() -> None:
    leave_fast_nodes_alone(seed=1, away_s=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_twenty_absences_from_fast_nodes_lose_nothing(seed: int) -> None:
    leave_fast_nodes_alone(seed=seed, away_s=20.0 if seed % 5 == 0 else 3.0)
