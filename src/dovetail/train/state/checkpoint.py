"""Checkpoints: when they are written, and how.

Each is one file, written atomically and read without executing anything.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dovetail.files.whole_file import write_whole
from dovetail.train.process.environment import warn
from dovetail.train.state.state import StateValues, TrainingState

FORMAT = 2
DATA = "data"
"""Key of the data's checksum in the job's identity."""
KEPT = 2
"""Number of files kept. Two: if the newest turns out to be damaged, the one before is used."""
WAIT_S = 1.0
NAME = re.compile(r"checkpoint-(\d{12})\.pt")


class CheckpointValues(StateValues):
    """The contents of a checkpoint; `job` identifies the job and its data."""

    format: int
    step: int
    samples: int
    passes: int
    loss: float | None
    job: Mapping[str, int]


@dataclass(slots=True)
class TrainingPosition:
    """Iterations and samples done, and whether this worker has the state.

    `passes` counts the passes whose code after the inner loop has run; `loss` is that of the last
    iteration.
    """

    step: int = 0
    samples: int = 0
    known: bool = False
    passes: int = 0
    loss: float | None = None


def checkpoint_path(folder: Path, step: int) -> Path:
    """Returns the file of the checkpoint after `step` iterations."""
    return folder / f"checkpoint-{step:012d}.pt"


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, newest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if NAME.fullmatch(p.name)), reverse=True)


def write(folder: Path, step: int, state: Mapping[str, object]) -> None:
    """Writes a checkpoint that survives a power failure, or leaves the folder unchanged.

    Raises OSError, for example if the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_whole(
            checkpoint_path(folder, step), lambda file: torch.save(state, file), folder_synced=True
        )
    except RuntimeError as error:  # torch's error for a full disk
        raise OSError(str(error).splitlines()[0]) from None
    # Last: a crash or a full disk before this line must leave an older checkpoint to start from.
    for old in list_checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def snapshot(
    parts: TrainingState, progress: TrainingPosition, job: Mapping[str, int]
) -> CheckpointValues:
    """Returns the contents of a checkpoint, as copies of the live tensors."""
    return {
        "format": FORMAT,
        "step": progress.step,
        "samples": progress.samples,
        "passes": progress.passes,
        "loss": progress.loss,
        "job": job,
        **parts.whole(),
    }


def restore(folder: Path, parts: TrainingState, job: Mapping[str, int]) -> TrainingPosition | None:
    """Restores the newest readable checkpoint; returns its position, or None without one.

    `job` must match (seed, samples in a pass), or samples would be used twice. A file that cannot
    be read is reported on stderr and skipped for an older one. Raises ValueError for a checkpoint
    of another job, or if there are checkpoints and none can be read.
    """
    damaged: list[Path] = []
    for path in list_checkpoints(folder):
        try:
            state: CheckpointValues = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            continue
        except Exception as error:  # torch raises many types for damaged files
            why = (str(error) or type(error).__name__).splitlines()[0]
            print(f"{path} cannot be read: {why}", file=sys.stderr)
            damaged.append(path)
            continue
        # Outside of the `try`: a file that can be read but does not fit is no reason to look at
        # older ones. Training on from one would lose work without a word.
        if state.get("format") != FORMAT:
            raise ValueError(f"{path}: written by another version of dovetail")
        _compare(path, state["job"], job)
        parts.take_whole(state)
        return TrainingPosition(
            state["step"], state["samples"], True, state["passes"], state["loss"]
        )
    if damaged:
        raise ValueError(f"{damaged[0]}: no checkpoint can be read; remove them to start over")
    return None


def _compare(path: Path, then: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raises ValueError for a checkpoint of another job; warns if only the data differ.

    NOTE: refusing other data would end trainings in which the difference does no harm, such as
    negative samples that were drawn at the start.
    """
    then = {**now, **then}  # older checkpoints have no checksum of the data
    if {**then, DATA: 0} != {**now, DATA: 0}:
        raise ValueError(f"{path}: checkpoint of another job: {then}, and this job is {now}")
    if then.get(DATA) != now.get(DATA):
        print(
            f"{path}: the data differ from those when it was written. Seed everything that the"
            " script draws (a split, for example), or it trains on its validation samples",
            file=sys.stderr,
        )


class CheckpointWriter:
    """Writes one checkpoint at a time on a thread of its own.

    `on_saved(step, samples)` is called once a file is safe on disk, `on_failure` with the reason if
    it is not, and `while_waiting` repeatedly while the training thread waits for the disk, which
    may take minutes: otherwise the worker would count as hung.
    """

    def __init__(
        self,
        folder: Path,
        on_saved: Callable[[int, int], None],
        on_failure: Callable[[str], None],
        while_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._on_saved = folder, on_saved
        self._on_failure, self._while_waiting = on_failure, while_waiting
        self._thread: threading.Thread | None = None
        self._safe = True

    @property
    def busy(self) -> bool:
        """Returns whether a file is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, state: CheckpointValues) -> None:
        """Writes a snapshot in the background, after the one that is being written."""
        # One at a time: a second snapshot would double the memory.
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(state,), name="dovetail-save")
        self._thread.start()

    def write(self, state: CheckpointValues) -> bool:
        """Writes a snapshot; returns whether it is safe on disk."""
        self.begin(state)
        self.wait()
        return self._safe

    def wait(self) -> None:
        """Waits until nothing is being written."""
        while self._thread is not None:
            self._thread.join(WAIT_S)
            self._while_waiting()
            if not self._thread.is_alive():
                self._thread = None

    def _write(self, state: CheckpointValues) -> None:
        # Until the file is there: after an unexpected error no worker may leave on its account.
        self._safe = False
        try:
            write(self._folder, state["step"], state)
        except OSError as error:
            self._on_failure(f"checkpoint of step {state['step']} not saved: {error}")
        else:
            self._on_saved(state["step"], state["samples"])
            self._safe = True


class CheckpointPolicy:
    """The checkpoints of a job; without a folder there are none."""

    def __init__(
        self,
        folder: Path | None,
        every_s: float,
        parts: TrainingState,
        progress: TrainingPosition,
        job: Mapping[str, int],
        *,
        loss: Callable[[], float | None],
        on_saved: Callable[[int, int], None],
        while_waiting: Callable[[], None],
    ) -> None:
        """`job` identifies the job and its data; the callbacks are those of `CheckpointWriter`."""
        self._folder, self._every_s, self._loss = folder, every_s, loss
        self._parts, self._progress, self._job = parts, progress, job
        self._saved_s = time.monotonic()
        self._writer = CheckpointWriter(folder or Path(), on_saved, warn, while_waiting)

    @property
    def due(self) -> bool:
        """Returns whether it is time for the next checkpoint."""
        if self._folder is None or self._writer.busy:
            return False
        return time.monotonic() - self._saved_s > self._every_s

    def first_state(self) -> TrainingPosition:
        """Restores the newest checkpoint, if any, and returns where training starts."""
        position = None
        if self._folder is not None:
            position = restore(self._folder, self._parts, self._job)
        return position or TrainingPosition(known=True)

    def save(self, *, at_once: bool) -> bool:
        """Saves, in the background unless `at_once`; returns False if the write failed."""
        self._saved_s = time.monotonic()
        if self._folder is None:
            warn("no checkpoint: the job has no folder")
            return False
        self._progress.loss = self._loss()
        # Copied here, on the training thread: the next step changes the tensors.
        state = snapshot(self._parts, self._progress, self._job)
        if not at_once:
            self._writer.begin(state)
            return True
        return self._writer.write(state)

    def save_unless_there(self) -> None:
        """Saves at once, unless another worker has saved this step: all have the same state."""
        self._writer.wait()
        if self._folder is None or checkpoint_path(self._folder, self._progress.step).exists():
            return
        self.save(at_once=True)

    def save_the_end(self) -> None:
        """Saves the final state."""
        if self._folder is not None:
            self.save(at_once=True)

    def close(self) -> None:
        """Waits until nothing is being written."""
        self._writer.wait()
