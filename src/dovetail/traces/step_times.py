"""Reads seconds per iteration by model and GPUs from a table that a user measured."""

from __future__ import annotations

import ast
import bisect
import json
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.errors import InputError, nearest
from dovetail.traces.delimited import read_delimited
from dovetail.traces.rows import JobIterations
from dovetail.traces.source import first_bytes, pieces

_MODEL = ("model_name", "model")
_GPUS = ("num_gpus", "gpus", "n_gpus")
_TIMES = {
    "step_time_us": 1e-6,
    "us_per_iteration": 1e-6,
    "step_time_ms": 1e-3,
    "step_time_s": 1.0,
    "seconds_per_iteration": 1.0,
}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured step times, with linear interpolation between numbers of GPUs."""

    seconds: dict[str, tuple[tuple[int, float], ...]]

    def __call__(self, model: str, gpus: int) -> float | None:
        """Returns the seconds per iteration, None outside the measured range."""
        points = self.seconds.get(model)
        if not points or not points[0][0] <= gpus <= points[-1][0]:
            return None
        at = bisect.bisect_left(points, (gpus, 0.0))
        right_n, right_s = points[at]
        if right_n == gpus:
            return right_s
        left_n, left_s = points[at - 1]
        return left_s + (right_s - left_s) * (gpus - left_n) / (right_n - left_n)


def read_step_times(path: Path, gpu_type: str = "v100") -> StepTimes:
    """Returns the table of a CSV (model, GPUs, step time) or of a Gavel throughputs JSON.

    `gpu_type` selects the part of a Gavel file. Raises InputError.
    """
    if first_bytes(path, 256).lstrip().startswith(b"{"):
        return _gavel(path, gpu_type)
    table = read_delimited(path)
    model = next((c for c in _MODEL if table.has(c)), _MODEL[0])
    gpus = next((c for c in _GPUS if table.has(c)), _GPUS[0])
    step = next((c for c in _TIMES if table.has(c)), "step_time_s")
    table.need(model, gpus, step)
    seconds = table.number(step) * _TIMES[step]
    bad = ~((seconds > 0) & (table.number(gpus) >= 1)).fill_null(False)
    if bad.any():
        raise table.error(step, bad, "is not a valid step time")
    rows = zip(table.text(model), table.number(gpus), seconds, strict=True)
    return _grouped([(str(m), round(n), float(s)) for m, n, s in rows])


def read_job_iterations(path: Path) -> JobIterations:
    """Returns the iterations per job of each model, from a CSV with model and iterations."""
    table = read_delimited(path)
    table.need("model", "iterations")
    values = table.number("iterations")
    bad = ~(values > 0).fill_null(False)
    if bad.any():
        raise table.error("iterations", bad, "is not a number of iterations")
    known = dict(zip(table.text("model").to_list(), values.to_list(), strict=True))
    return lambda model, batch_size: known.get(model)


def _gavel(path: Path, gpu_type: str) -> StepTimes:
    try:
        table = json.loads(b"".join(pieces(path)))  # one long line is fine here
        parts = table if isinstance(table, dict) else {}
        if gpu_type not in parts:
            raise InputError(str(path), f"has no GPU type '{gpu_type}'", nearest(gpu_type, parts))
        rows = []
        for key, rates in parts[gpu_type].items():
            model, gpus = ast.literal_eval(key)
            rate = float(rates["null"])
            if rate > 0:
                rows.append((str(model), int(gpus), 1.0 / rate))
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        raise InputError(str(path), f"is not a table of throughputs: {error!r:.80}") from None
    return _grouped(rows)


def _grouped(rows: list[tuple[str, int, float]]) -> StepTimes:
    seconds: dict[str, list[tuple[int, float]]] = {}
    for model, gpus, step_s in rows:
        seconds.setdefault(model, []).append((gpus, step_s))
    return StepTimes({model: tuple(sorted(points)) for model, points in seconds.items()})
