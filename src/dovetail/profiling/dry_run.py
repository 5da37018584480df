"""Runs a training script for a few iterations, in each of several manners, and reads what it took.

One worker tries smaller and smaller sub-batches by itself (`DOVETAIL_PROFILE_STEPS`); more workers
are played on a rehearsal stage, without any scheduler. A script that is not written with
`dovetail.train` runs as it is, and only its wall time is known.
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
BIND = (
    "import os,sys;os.sched_setaffinity(0,{int(sys.argv[1])});os.execvp(sys.argv[2],sys.argv[2:])"
)
"""Binds itself to a core and becomes the command that follows."""


class MeasuredSubBatch(NamedTuple):
    """One worker with its batch cut into so many steps, of so many samples each."""

    samples: int
    steps: int
    iteration_s: float
    memory_bytes: int
    stage_s: tuple[float, ...]


class Alone(NamedTuple):
    """What one worker told of the script."""

    model: str
    parameters: int
    batch_size: int
    device: str
    sub_batches: tuple[MeasuredSubBatch, ...]


class Place(NamedTuple):
    """A GPU, or a core, for one worker alone: by its environment, and by being bound to it."""

    environment: Mapping[str, str]
    core: int | None = None

    def of(self, command: Sequence[str]) -> list[str]:
        """Returns the command bound to the core of this place."""
        if self.core is None:
            return list(command)
        return [sys.executable, "-c", BIND, str(self.core), *command]


def places() -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """Returns the GPUs of this machine, or its cores where it has none, and what to know of them.

    A worker on a core computes with one thread and sees no GPU, as one in a CPU slot of a cluster.
    """
    found = gpus()
    if found.devices is not None:
        return tuple(Place({VISIBLE: name}) for name in found.devices.names), found.notes
    alone = {"OMP_NUM_THREADS": "1", VISIBLE: ""}
    cores = sorted(os.sched_getaffinity(0))
    return tuple(Place(alone, core) for core in cores), found.notes


class Together(NamedTuple):
    """What so many workers took for an iteration, its batch shared evenly among them."""

    workers: int
    iteration_s: float
    memory_bytes: int
    stage_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """A command of the user's, and the places at which its workers run."""

    command: tuple[str, ...]
    directory: Path
    places: tuple[Place, ...]
    limit_s: float = 600.0

    @property
    def name(self) -> str:
        """Returns what messages call it: the last word of its path."""
        return next((Path(w).name for w in self.command if w.endswith(".py")), self.command[0])

    def alone(self, iterations: int) -> Alone | float:
        """Returns what one worker tells, or the wall time of a script that tells nothing.

        Raises InputError when the script fails or takes longer than the limit.
        """
        with tempfile.TemporaryDirectory(prefix="dvt") as folder:
            said = Path(folder) / "said.json"
            asked = {PROFILE_STEPS: str(iterations), PROFILE_FILE: str(said)}
            began = time.monotonic()
            with (Path(folder) / "output").open("w+b") as output:
                worker = _Worker(self, self.places[0], asked, output)
                try:
                    code = worker.wait(self.limit_s)
                finally:
                    worker.kill()
                self._check(code, output)
            wall_s = time.monotonic() - began
            return self._read(said) if said.exists() else wall_s

    def together(self, workers: int, iterations: int) -> Together:
        """Returns what so many workers take. Raises InputError when they cannot train."""
        # Not at the top: it brings PyTorch, which one worker alone does not need.
        from dovetail.train.rehearsal import Rehearsal

        with tempfile.TemporaryFile() as output:
            free = list(self.places[:workers])

            def started(environment: dict[str, str]) -> _Worker:
                return _Worker(self, free.pop(0), environment, output)

            with Rehearsal(started) as stage:
                stage.start(*range(workers), environment={REPORT: str(REPORT_EVERY_S)})
                generation = stage.regroup(*range(workers))
                processes = [worker.process for worker in stage.workers.values()]

                def enough() -> bool:
                    reports = _of(generation, stage.all_said(0, Training))
                    gone = any(worker.is_over for worker in stage.workers.values())
                    return gone or _spans(reports, iterations)

                with suppress(TimeoutError):
                    stage.until(enough, self.limit_s)
                reports = _of(generation, stage.all_said(0, Training))
                codes = [process.poll() for process in processes]
            self._check(next((code for code in codes if code), 0), output)
        if not _spans(reports, iterations):
            raise InputError(
                self.name,
                f"{workers} workers did not get through {iterations} iterations",
                "give it more samples or epochs, more time with --limit, or ask for less with -n",
            )
        return _mean(workers, reports[1:])

    def _check(self, code: int | None, output: IO[bytes]) -> None:
        if code is None:
            raise InputError(self.name, f"it did not end within {self.limit_s:g} s", "see --limit")
        if code:
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
            last = text.splitlines()[-1][-ERROR_CHARACTERS:] if text else "it said nothing"
            raise InputError(self.name, f"it ended with exit code {code}", last)

    def _read(self, said: Path) -> Alone:
        try:
            line = json.loads(said.read_text(encoding="utf-8"))
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
            return Alone(
                str(line["model"]), int(line["parameters"]), int(line["batch_size"]), device, rows
            )
        except (ValueError, KeyError, TypeError) as trouble:
            raise InputError(self.name, f"its measurements cannot be read: {trouble!r}") from None


class _Worker:
    """A process of the script, in a session of its own so that all of it can be ended."""

    def __init__(
        self,
        script: TrainingScript,
        place: Place,
        environment: Mapping[str, str],
        output: IO[bytes],
    ) -> None:
        try:
            self._process = subprocess.Popen(
                place.of(script.command),
                cwd=script.directory,
                env={**os.environ, **place.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(script.name, f"cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """Returns its number."""
        return self._process.pid

    def poll(self) -> int | None:
        """Returns its exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float) -> int | None:
        """Returns its exit code, None if the limit came first."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kills it and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)


def _of(generation: int, reports: Sequence[Training]) -> list[Training]:
    return [said for said in reports if said.generation == generation]


def _spans(reports: Sequence[Training], iterations: int) -> bool:
    """Tells whether the reports after the first speak of so many iterations."""
    return len(reports) > 1 and reports[-1].step - reports[0].step >= iterations


def _mean(workers: int, reports: Sequence[Training]) -> Together:
    last = reports[-1]
    return Together(
        workers,
        median(said.iteration_s for said in reports),
        max(said.memory_bytes for said in reports),
        last.stage_s,
    )
