"""A worker waits until the driver has freed the GPU memory of the one before it."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from played_driver import PlayedDriver

from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.devices import Devices
from dovetail.live.engines.gpu_release import RELEASE_WITHIN_S, SETTLED_S, GpuRelease
from dovetail.live.engines.local import LocalProcessSettings
from dovetail.live.engines.processes import ProcessLauncher
from dovetail.live.node.agent import START_AGAIN_S, Agent
from dovetail.wire.agent import (
    AgentOrder,
    AgentReport,
    EndWorker,
    StartWorker,
    WorkerDeferred,
)
from patience import FOR_EVER_S, until

GIB = float(1 << 30)
NAMES = ("GPU-0", "GPU-1")


class Clock:
    """A clock that stands until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def watched(driver: PlayedDriver, clock: Clock, *, has_host_pids: bool = True) -> GpuRelease:
    return GpuRelease(driver, NAMES, has_host_pids=has_host_pids, clock=clock)


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_gpu_is_held_while_nvml_lists_a_process_of_it_that_is_gone(gone: int) -> None:
    driver, clock = PlayedDriver(), Clock()
    release = watched(driver, clock)
    release.started((7, 0), (0, 1))
    driver.pids = {"GPU-0": [gone], "GPU-1": [os.getpid()]}
    release.ended((7, 0))
    assert release.held((0, 1)) == (0,), "a neighbour that lives on GPU 1 is no reason to wait"
    driver.pids["GPU-0"] = []
    assert release.held((0, 1)) == ()


def test_a_gpu_on_which_no_worker_of_ours_ended_is_not_waited_for(gone: int) -> None:
    driver = PlayedDriver()
    release = watched(driver, Clock())
    assert release.held((0,)) == ()
    driver.pids = {"GPU-0": [gone]}
    assert release.held((0,)) == ()


def test_what_an_earlier_agent_may_have_ended_is_waited_for(gone: int) -> None:
    driver = PlayedDriver({"GPU-1": [gone]})
    assert watched(driver, Clock()).held((0, 1)) == (1,)


def test_a_worker_that_an_agent_found_is_waited_for_when_it_ends(gone: int) -> None:
    driver, clock = PlayedDriver(), Clock()
    release = watched(driver, clock)
    assert release.held((0,)) == ()
    release.adopted((7, 0), (0,))
    driver.pids = {"GPU-0": [gone]}
    release.ended((7, 0))
    assert release.held((0,)) == (0,)


def test_after_half_a_minute_the_next_worker_starts_and_the_log_says_so(
    gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver, clock = PlayedDriver({"GPU-0": [gone]}), Clock()
    release = watched(driver, clock)
    clock.now_s = RELEASE_WITHIN_S - 0.1
    assert release.held((0,)) == (0,)
    clock.now_s = RELEASE_WITHIN_S
    with caplog.at_level(logging.WARNING):
        assert release.held((0,)) == () and release.held((0,)) == ()
    (said,) = caplog.messages
    assert said.startswith("GPU-0: the memory of a worker that ended 30 s ago is still not free")


@pytest.mark.parametrize("why", ["another namespace", "not supported"])
def test_without_numbers_of_processes_memory_must_fall_to_what_it_was(why: str, gone: int) -> None:
    driver, clock = PlayedDriver({"GPU-0": [gone]}, {"GPU-0": 3 * GIB}), Clock()
    if why == "not supported":
        driver.silent = {"processes"}
    release = watched(driver, clock, has_host_pids=why == "not supported")
    release.started((7, 0), (0,))
    driver.used_bytes["GPU-0"] = 70 * GIB
    release.ended((7, 0))
    # It falls slowly: each step is a reason to wait on.
    for now_s, used_gib in ((1.5, 60), (3.0, 30), (4.5, 4)):
        clock.now_s, driver.used_bytes["GPU-0"] = now_s, used_gib * GIB
        assert release.held((0,)) == (0,)
    driver.used_bytes["GPU-0"] = 3 * GIB
    assert release.held((0,)) == ()


def test_memory_that_does_not_fall_any_more_belongs_to_somebody_else() -> None:
    driver, clock = PlayedDriver(), Clock()
    release = watched(driver, clock, has_host_pids=False)
    release.started((7, 0), (0,))
    driver.used_bytes["GPU-0"] = 70 * GIB
    release.ended((7, 0))
    clock.now_s, driver.used_bytes["GPU-0"] = 1.0, 40 * GIB
    assert release.held((0,)) == (0,)
    clock.now_s = 1.0 + SETTLED_S - 0.1
    assert release.held((0,)) == (0,)
    clock.now_s = 1.0 + SETTLED_S
    assert release.held((0,)) == ()


def test_a_driver_that_says_nothing_holds_nobody_up() -> None:
    driver, clock = PlayedDriver(silent={"processes", "memory"}), Clock()
    for has_host_pids in (True, False):
        release = watched(driver, clock, has_host_pids=has_host_pids)
        release.started((7, 0), (0,))
        release.ended((7, 0))
        assert release.held((0,)) == ()


def test_without_a_driver_or_a_binding_nothing_is_watched() -> None:
    def absent() -> Any:
        raise ModuleNotFoundError("pynvml")

    assert GpuRelease.open(NAMES, absent) is None
    assert GpuRelease.open(NAMES, lambda: PlayedDriver(silent={"init"})) is None
    driver = PlayedDriver()
    assert GpuRelease.open(NAMES, lambda: driver) is not None and driver.opened == 1


# With real processes.


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    yield path
    shutil.rmtree(path)


def test_the_successor_of_a_killed_worker_waits_and_the_others_do_not(folder: Path) -> None:
    """The clock of the release stands: nothing but the driver ends this wait."""
    driver = PlayedDriver()
    devices = Devices(NAMES, "nvidia-h100-80gb", 80 << 30)
    setting = LocalProcessSettings(
        devices,
        folder / "agent.sock",
        ControlGroups(0, None, None),
        release=watched(driver, Clock()),
    )
    text = "import os, time; open(str(os.getpid()), 'w').close(); time.sleep(" + f"{FOR_EVER_S})"
    words = (sys.executable, "-c", text)
    work = folder / "work"
    work.mkdir()
    order = StartWorker(7, 0, 1, 0, words, str(folder), str(folder / "out"), str(work))

    with closing(ProcessLauncher(folder / "workers", setting)) as launcher:
        agent = Agent(0, NAMES, launcher)

        def start(worker: int, gpu: int) -> list[AgentReport]:
            return agent.handle(AgentOrder(1, start=replace(order, worker=worker, gpu=gpu)), 0.0)

        (report,) = start(0, 0)
        assert report.started is not None
        until(lambda: list(work.iterdir()))
        driver.pids["GPU-0"] = [int(path.name) for path in work.iterdir()]
        agent.handle(AgentOrder(1, end=EndWorker(7, 0, 0.0)), 0.0)
        ended: list[AgentReport] = []
        until(lambda: ended.extend(agent.tick(0.0)) or ended)
        assert ended[0].ended is not None and ended[0].ended.exit_code == -signal.SIGKILL

        why = "the driver has not yet freed the memory of an earlier worker on GPU 0"
        assert start(1, 0) == [AgentReport(0, deferred=WorkerDeferred(7, 1, why))]
        assert agent.next_due() <= START_AGAIN_S and agent.alive == ()
        (report,) = start(2, 1)
        assert report.started is not None, "the rest of the gang starts at once"
        assert agent.tick(START_AGAIN_S) == [] and agent.alive == ((7, 2),)
        driver.pids["GPU-0"] = []
        (report,) = [r for r in agent.tick(2 * START_AGAIN_S) if r.started]
        assert report.started is not None and report.started.worker == 1
        agent.end_all(0.0, 1.0)
        until(lambda: (agent.tick(1.0), not agent.alive)[1])
