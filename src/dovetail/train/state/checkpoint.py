"""Checkpoints: one file each, whole or not there, read without executing anything."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dovetail.train.state.state import Parts

FORMAT = 2
DATA = "data"
"""The number for the data of a job, among what it was."""
KEPT = 2
"""Files kept; older ones are removed when a newer one is safe on disk."""
WAIT_S = 1.0
NAME = re.compile(r"checkpoint-(\d{12})\.pt")


@dataclass(slots=True)
class Progress:
    """How far training is: iterations and samples done, and whether this worker has the state.

    `passes` counts those after which the script has done what it does after each; `loss` is that
    of the last iteration.
    """

    step: int = 0
    samples: int = 0
    known: bool = False
    passes: int = 0
    loss: float | None = None


def path_of(folder: Path, step: int) -> Path:
    """Returns the file of the state after so many iterations."""
    return folder / f"checkpoint-{step:012d}.pt"


def saved(folder: Path) -> list[Path]:
    """Returns the checkpoints of a folder, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if NAME.fullmatch(p.name)), reverse=True)


def write(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Writes a checkpoint that survives a loss of power, or leaves everything as it was.

    Raises OSError (a disk that is full, say).
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".checkpoint-{step}-{os.getpid()}.draft"
    try:
        with draft.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path_of(folder, step))
    except RuntimeError as error:  # torch's word for a disk that is full
        raise OSError(str(error).splitlines()[0]) from None
    finally:
        draft.unlink(missing_ok=True)
    holder = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(holder)
    finally:
        os.close(holder)
    for old in saved(folder)[KEPT:]:
        old.unlink(missing_ok=True)


def snapshot(parts: Parts, progress: Progress, job: dict[str, Any]) -> dict[str, Any]:
    """Returns everything a job needs to go on, apart from the live tensors."""
    return {
        "format": FORMAT,
        "step": progress.step,
        "samples": progress.samples,
        "passes": progress.passes,
        "loss": progress.loss,
        "job": job,
        **parts.whole(),
    }


def restore(folder: Path, parts: Parts, job: dict[str, Any]) -> Progress | None:
    """Takes on the newest checkpoint of a folder; returns how far it was, or None without one.

    `job` says what must be as it was (seed, samples in a pass), or samples would be used twice.
    A file that cannot be read is passed over for an older one, and said to be on stderr.
    Raises ValueError for a checkpoint of another job, or if there are some and none can be read.
    """
    damaged: list[Path] = []
    for path in saved(folder):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            continue
        except Exception as error:  # whatever torch makes of bytes that are none of its own
            why = (str(error) or type(error).__name__).splitlines()[0]
            print(f"{path} cannot be read: {why}", file=sys.stderr)
            damaged.append(path)
            continue
        if state.get("format") != FORMAT:
            raise ValueError(f"{path}: written by another version of dovetail")
        _compare(path, state["job"], job)
        parts.take_whole(state)
        return Progress(state["step"], state["samples"], True, state["passes"], state["loss"])
    if damaged:
        raise ValueError(f"{damaged[0]}: no checkpoint can be read; remove them to begin anew")
    return None


def _compare(path: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Raises ValueError for a checkpoint of another job; tells of one of other data.

    NOTE: to refuse these would spoil a training in which they do no harm, such as negative samples
    that were drawn when it began.
    """
    then = {**now, **then}  # older ones say nothing of the data
    if {**then, DATA: None} != {**now, DATA: None}:
        raise ValueError(f"{path}: another job's: {then}, and this one is {now}")
    if then.get(DATA) != now.get(DATA):
        print(
            f"{path}: the data are others than when it was written. What the script draws without a"
            " seed (a split, say) it must draw with one, or it trains on what it validates on",
            file=sys.stderr,
        )


class Writer:
    """Writes one checkpoint at a time on a thread of its own; the newest wish waits for its turn.

    `told(step, samples)` is called when a file is safe on disk, `failed` with the reason when not.
    """

    def __init__(
        self,
        folder: Path,
        told: Callable[[int, int], None],
        failed: Callable[[str], None],
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits` is called again and again by who waits: a disk may take minutes."""
        self._folder, self._told, self._failed, self._waits = folder, told, failed, waits
        self._thread: threading.Thread | None = None
        self._safe = True

    @property
    def busy(self) -> bool:
        """Returns whether a file is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, state: dict[str, Any]) -> None:
        """Writes a snapshot in the background; ends the one before first."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(state,), name="dovetail-save")
        self._thread.start()

    def write(self, state: dict[str, Any]) -> bool:
        """Writes a snapshot now; returns whether it is safe on disk."""
        self.begin(state)
        self.wait()
        return self._safe

    def wait(self) -> None:
        """Returns when nothing is being written."""
        while self._thread is not None:
            self._thread.join(WAIT_S)
            self._waits()
            if not self._thread.is_alive():
                self._thread = None

    def _write(self, state: dict[str, Any]) -> None:
        self._safe = False
        try:
            write(self._folder, state["step"], state)
        except OSError as error:
            self._failed(f"checkpoint of step {state['step']} not saved: {error}")
        else:
            self._told(state["step"], state["samples"])
            self._safe = True
