"""Runs a training script for a few iterations per configuration, and reads what it measured.

One worker tries smaller and smaller sub-batches by itself (`DOVETAIL_PROFILE_STEPS`). Several
workers run in a rehearsal, without any scheduler. A script that is not written with
`dovetail.train` runs to its end, and only its wall time is known.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

from dovetail.core.errors import InputError
from dovetail.live.engines.nvml import VISIBLE, gpus
from dovetail.wire.worker import PROFILE_FILE, PROFILE_STEPS, REPORT, Training

REPORT_EVERY_S = 0.1
ERROR_CHARACTERS = 300
KILL_TIMEOUT_S = 10.0
BIND = (
    "import os,sys;os.sched_setaffinity(0,{int(sys.argv[1])});os.execvp(sys.argv[2],sys.argv[2:])"
)
"""Binds itself to a core and becomes the command that follows."""


class MeasuredSubBatch(NamedTuple):
    """One worker with its batch cut into `steps` micro-batches of `samples` samples."""

    samples: int
    steps: int
    iteration_s: float
    memory_bytes: int
    stage_s: tuple[float, ...]


class SingleWorkerRun(NamedTuple):
    """The report of one worker: its model, and a row per sub-batch, the whole batch first."""

    model: str
    parameters: int
    batch_size: int
    device: str
    sub_batches: tuple[MeasuredSubBatch, ...]


class ParallelRun(NamedTuple):
    """The iteration of several workers that share the batch evenly."""

    workers: int
    iteration_s: float
    memory_bytes: int
    stage_s: tuple[float, ...]


class WorkerSlot(NamedTuple):
    """A GPU, or a core, for one worker: its environment, and the core to bind it to."""

    environment: Mapping[str, str]
    core: int | None = None

    def bind(self, command: Sequence[str]) -> list[str]:
        """Returns the command bound to the core of this slot."""
        if self.core is None:
            return list(command)
        return [sys.executable, "-c", BIND, str(self.core), *command]


def worker_slots() -> tuple[tuple[WorkerSlot, ...], tuple[str, ...]]:
    """Returns the GPUs of this machine, or its cores where it has none, and notes for the user.

    A worker on a core computes with one thread and sees no GPU, as one in a CPU slot of a cluster.
    """
    inventory = gpus()
    if inventory.devices is not None:
        slots = tuple(WorkerSlot({VISIBLE: name}) for name in inventory.devices.names)
        return slots, inventory.notes
    environment = {"OMP_NUM_THREADS": "1", VISIBLE: ""}
    cores = sorted(os.sched_getaffinity(0))
    return tuple(WorkerSlot(environment, core) for core in cores), inventory.notes


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """A command of the user, and the slots that its workers run in."""

    command: tuple[str, ...]
    directory: Path
    slots: tuple[WorkerSlot, ...]
    limit_s: float = 600.0

    @property
    def name(self) -> str:
        """Returns its name in messages: the file of the script, else the program."""
        return next((Path(w).name for w in self.command if w.endswith(".py")), self.command[0])

    def run_single(self, iterations: int) -> SingleWorkerRun | float:
        """Returns the report of one worker, or the wall time of a script that writes none.

        Raises InputError when the script fails or takes longer than the limit.
        """
        with tempfile.TemporaryDirectory(prefix="dvt") as folder:
            report = Path(folder) / "report.json"
            variables = {PROFILE_STEPS: str(iterations), PROFILE_FILE: str(report)}
            began = time.monotonic()
            with (Path(folder) / "output").open("w+b") as output:
                process = self._start(self.slots[0], variables, output)
                code = None
                try:
                    with suppress(subprocess.TimeoutExpired):
                        code = process.wait(self.limit_s)
                finally:
                    _kill_session(process)
                self._check(code, output)
            wall_s = time.monotonic() - began
            return self._read(report) if report.exists() else wall_s

    def run_parallel(self, workers: int, iterations: int) -> ParallelRun:
        """Returns the iteration of several workers. Raises InputError when they cannot train."""
        # Imported here: it brings PyTorch, which a single worker does not need. A program with a
        # Python of its own may have it where this one does not.
        try:
            from dovetail.train.rehearsal import Rehearsal
        except ImportError:
            raise InputError(
                self.name,
                f"running {workers} workers needs PyTorch here",
                "install dovetail[train], or measure one worker with -w 1",
            ) from None

        with tempfile.TemporaryFile() as output:
            free = list(self.slots[:workers])
            processes: list[subprocess.Popen[bytes]] = []

            def start(environment: dict[str, str]) -> subprocess.Popen[bytes]:
                processes.append(self._start(free.pop(0), environment, output))
                return processes[-1]

            try:
                with Rehearsal(start) as stage:
                    stage.start(*range(workers), environment={REPORT: str(REPORT_EVERY_S)})
                    generation = stage.regroup(*range(workers))

                    def reports() -> list[Training]:
                        messages = stage.messages(0, Training)
                        return [m for m in messages if m.generation == generation]

                    def is_over() -> bool:
                        ended = any(worker.is_over for worker in stage.workers.values())
                        return ended or _cover(reports(), iterations)

                    with suppress(TimeoutError):
                        stage.until(is_over, self.limit_s)
                    rows = reports()
                    # Before the rehearsal ends, which kills the workers that still train.
                    codes = [process.poll() for process in processes]
            finally:
                for process in processes:
                    _kill_session(process)
            self._check(next((code for code in codes if code), 0), output)
        if not _cover(rows, iterations):
            raise InputError(
                self.name,
                f"{workers} workers did not get through {iterations} iterations",
                "give it more samples or epochs, more time with --limit, or ask for less with -n",
            )
        # The first report covers the start, when workers still wait for each other.
        measured = rows[1:]
        return ParallelRun(
            workers,
            median(row.iteration_s for row in measured),
            max(row.memory_bytes for row in measured),
            measured[-1].stage_s,
        )

    def _start(
        self, slot: WorkerSlot, environment: Mapping[str, str], output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Starts a worker in a session of its own, so that its children can be killed with it."""
        try:
            return subprocess.Popen(
                slot.bind(self.command),
                cwd=self.directory,
                env={**os.environ, **slot.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(self.name, f"cannot be started: {error.strerror}") from None

    def _check(self, code: int | None, output: IO[bytes]) -> None:
        """Raises InputError for a worker that failed, or that did not end (None)."""
        if code is None:
            raise InputError(self.name, f"it did not end within {self.limit_s:g} s", "see --limit")
        if code:
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
            last = text.splitlines()[-1][-ERROR_CHARACTERS:] if text else "it printed nothing"
            raise InputError(self.name, f"it ended with exit code {code}", last)

    def _read(self, report: Path) -> SingleWorkerRun:
        try:
            line = json.loads(report.read_text(encoding="utf-8"))
            rows = tuple(
                MeasuredSubBatch(
                    int(row["samples"]),
                    int(row["steps"]),
                    float(row["iteration_s"]),
                    int(row["memory_bytes"]),
                    tuple(float(s) for s in row["stage_s"]),
                )
                for row in line["sub_batches"]
            )
            device = str(line.get("device_name") or line["device"])
            return SingleWorkerRun(
                str(line["model"]), int(line["parameters"]), int(line["batch_size"]), device, rows
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(self.name, f"its measurements cannot be read: {error!r}") from None


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kills a worker and everything it started, also if the worker itself has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILL_TIMEOUT_S)


def _cover(reports: Sequence[Training], iterations: int) -> bool:
    """Returns whether the reports after the first cover enough iterations."""
    return len(reports) > 1 and reports[-1].step - reports[0].step >= iterations
