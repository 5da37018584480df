"""A dry run: a few iterations with each sub-batch, and a line of JSON about what they took.

`DOVETAIL_PROFILE_STEPS=N` in the environment of a script asks for it. The script trains N
iterations in the smallest micro-batches, then in ones twice as large and so on up to the whole
batch at once, writes the line to the file that `DOVETAIL_PROFILE_FILE` names (or prints it) and
ends. Nothing is saved.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import torch

from dovetail.train.data.samples import Manner
from dovetail.train.measure.stages import Stopwatch
from dovetail.train.process.device_memory import DeviceMemory

WARM_UP = 2
"""Iterations before the first is counted, and before each further sub-batch."""
SUB_BATCHES_MAX = 5


def device_name(device: torch.device) -> str:
    """Returns what a device is called."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.machine() or device.type


class DryRun:
    """Which sub-batch is tried now, and what the ones before took."""

    def __init__(
        self, iterations: int, file: Path | None, *, batch_size: int, at_least: int, model: str
    ) -> None:
        """`at_least` so many samples are tried at a time."""
        self._iterations, self._file = iterations, file
        self._batch_size, self._at_least, self._model = batch_size, at_least, model
        # The smallest first: the most that was held never falls again, of a process.
        steps = [1 << i for i in reversed(range(SUB_BATCHES_MAX))]
        self._to_try = [s for s in steps if batch_size // s >= at_least]
        self._done = 0
        self._found: list[dict[str, object]] = []

    @property
    def over(self) -> bool:
        """Returns whether every sub-batch was tried."""
        return len(self._found) == len(self._to_try)

    def manner(self) -> Manner:
        """Returns how the next iteration trains."""
        return Manner(
            self._batch_size, steps=self._to_try[len(self._found)], at_least=self._at_least
        )

    def iterated(self, watch: Stopwatch, memory: DeviceMemory) -> None:
        """Takes note of an iteration."""
        self._done += 1
        if self._done == 1:
            memory.renew()
        if self._done == WARM_UP:
            watch.forget()
        if self._done < WARM_UP + self._iterations:
            return
        steps = self._to_try[len(self._found)]
        self._found.insert(
            0,
            {
                "samples": -(-self._batch_size // steps),
                "steps": steps,
                "iteration_s": watch.iteration_s,
                "rate": self._batch_size / watch.iteration_s,
                "memory_bytes": memory.held_bytes(),
                "stage_s": list(watch.stage_s),
            },
        )
        self._done = 0

    def report(self, parameters: int, device: torch.device) -> None:
        """Writes the line."""
        line = json.dumps(
            {
                "model": self._model,
                "parameters": parameters,
                "batch_size": self._batch_size,
                "device": device.type,
                "device_name": device_name(device),
                "sub_batches": self._found,
            }
        )
        if self._file:
            self._file.write_text(line + "\n", encoding="utf-8")
        else:
            sys.stdout.write(line + "\n")
