"""A dry run: a few iterations per sub-batch size, and one line of JSON with their measurements.

`DOVETAIL_PROFILE_STEPS=N` in the environment of a script requests it. The script trains N
iterations with the smallest micro-batches, then with ones twice as large, up to the whole batch at
once. It writes the line to the file named by `DOVETAIL_PROFILE_FILE` (or to stdout) and exits.
Nothing is saved.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import torch

from dovetail.train.data.samples import BatchSplit
from dovetail.train.measure.stages import StageTimer
from dovetail.train.process.device import DeviceMemory

WARM_UP = 2
"""Iterations that are not counted, at the start and after each change of the sub-batch."""
SUB_BATCHES_MAX = 5


def device_name(device: torch.device) -> str:
    """Returns the product name of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.machine() or device.type


class DryRun:
    """The sub-batch that is measured now, and the measurements so far."""

    def __init__(
        self, iterations: int, file: Path | None, *, batch_size: int, at_least: int, model: str
    ) -> None:
        """Sub-batches of fewer than `at_least` samples are not measured."""
        self._iterations, self._file = iterations, file
        self._batch_size, self._at_least, self._model = batch_size, at_least, model
        # The smallest first: the peak memory of a process never falls again.
        steps = [1 << i for i in reversed(range(SUB_BATCHES_MAX))]
        self._step_counts = [s for s in steps if batch_size // s >= at_least]
        self._iterated = 0
        self._measurements: list[dict[str, object]] = []

    @property
    def is_over(self) -> bool:
        """Returns whether every sub-batch is measured."""
        return len(self._measurements) == len(self._step_counts)

    def next_split(self) -> BatchSplit:
        """Returns how the next iteration splits its batch."""
        return BatchSplit(
            self._batch_size,
            steps=self._step_counts[len(self._measurements)],
            at_least=self._at_least,
        )

    def record_iteration(self, timer: StageTimer, memory: DeviceMemory) -> None:
        """Records an iteration."""
        self._iterated += 1
        if self._iterated == 1:
            memory.renew()
        if self._iterated == WARM_UP:
            timer.forget()
        if self._iterated < WARM_UP + self._iterations:
            return
        steps = self._step_counts[len(self._measurements)]
        self._measurements.insert(
            0,
            {
                "samples": -(-self._batch_size // steps),
                "steps": steps,
                "iteration_s": timer.iteration_s,
                "rate": self._batch_size / timer.iteration_s,
                "memory_bytes": memory.held_bytes(),
                "stage_s": list(timer.stage_s),
            },
        )
        self._iterated = 0

    def report(self, parameters: int, device: torch.device) -> None:
        """Writes the line of JSON."""
        line = json.dumps(
            {
                "model": self._model,
                "parameters": parameters,
                "batch_size": self._batch_size,
                "device": device.type,
                "device_name": device_name(device),
                "sub_batches": self._measurements,
            }
        )
        if self._file:
            self._file.write_text(line + "\n", encoding="utf-8")
        else:
            sys.stdout.write(line + "\n")
