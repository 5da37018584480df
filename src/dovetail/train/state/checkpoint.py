"""Checkpoints: one file each, written atomically, read without executing anything."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dovetail.files.whole_file import write_whole
from dovetail.train.state.state import StateValues, TrainingState

FORMAT = 2
DATA = "data"
"""Key of the data's checksum in the job's identity."""
KEPT = 2
"""Number of files kept; older ones are removed once a newer one is safe on disk."""
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
    # Only now: the newest checkpoint must be safe before an older one is removed.
    for old in list_checkpoints(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def snapshot(
    parts: TrainingState, progress: TrainingPosition, job: Mapping[str, int]
) -> CheckpointValues:
    """Returns everything that a checkpoint holds, as copies of the live tensors."""
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

    `told(step, samples)` is called once a file is safe on disk, `failed` with the reason if not.
    """

    def __init__(
        self,
        folder: Path,
        told: Callable[[int, int], None],
        failed: Callable[[str], None],
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits` is called repeatedly while a caller waits: a disk may take minutes."""
        self._folder, self._told, self._failed, self._waits = folder, told, failed, waits
        self._thread: threading.Thread | None = None
        self._safe = True

    @property
    def busy(self) -> bool:
        """Returns whether a file is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, state: CheckpointValues) -> None:
        """Writes a snapshot in the background, after the one that is being written."""
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
            self._waits()
            if not self._thread.is_alive():
                self._thread = None

    def _write(self, state: CheckpointValues) -> None:
        self._safe = False
        try:
            write(self._folder, state["step"], state)
        except OSError as error:
            self._failed(f"checkpoint of step {state['step']} not saved: {error}")
        else:
            self._told(state["step"], state["samples"])
            self._safe = True
