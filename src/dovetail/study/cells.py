"""Runs the cells of a grid in parallel: one trace, which the processes share, and many settings.

A worker receives the trace once and sends back only what a table needs, so a grid of many cells
takes little memory. The outcomes do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from types import TracebackType

import numpy as np
import polars as pl

from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.trace import ENDS, TIMEOUT, Trace
from dovetail.forecast.available import resolved
from dovetail.record.result import RunResult
from dovetail.study.changes import CELLS_MAX, GridCell, Setting
from dovetail.study.options import Options
from dovetail.study.parallel import (
    POLL_S,
    Progress,
    cores,
    is_known_anywhere,
    set_up_worker,
    undisturbed,
    working_pool,
)
from dovetail.study.run import fitting_rows, simulate
from dovetail.study.spot import with_turns


@dataclass(frozen=True, slots=True)
class Premise:
    """What all cells of a grid have in common.

    With `exempt`, a time limit of a cell does not apply to jobs that are longer; otherwise it ends
    them. `defaults` are the options that the user left to us, which the first line names.
    """

    trace: Trace
    options: Options
    exempt: bool = False
    defaults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """What a cell did to each job of the whole trace, row by row, and to the GPUs.

    Times are NaN for a job that is left out or did not finish. `left_out`: it can never fit the
    cluster. `cut`: its time limit ended it before its work was done. `stops` are preemptions.
    """

    jct_s: Floats
    wait_s: Floats
    time_to_start_s: Floats
    left_out: Bools
    cut: Bools
    stops: Ints
    cut_held_gpu_s: float
    held_gpu_s: float
    useful_gpu_s: float
    gpu_utilization: float | None
    lasted_s: float


def with_longest_limit(trace: Trace, limit_s: float | None, *, exempt: bool) -> Trace:
    """Returns the trace with every time limit lowered to `limit_s`; infinite removes all limits."""
    if limit_s is None:
        return trace
    own_s = trace.jobs.time_limit_s
    limits_s = np.full(len(trace), np.inf) if np.isinf(limit_s) else np.minimum(own_s, limit_s)
    if exempt:
        limits_s = np.where(trace.duration_s > limit_s, own_s, limits_s)
    return replace(trace, jobs=replace(trace.jobs, time_limit_s=limits_s))


def scene_of(premise: Premise, setting: Setting) -> tuple[Trace, Policy, Options]:
    """Returns what a cell simulates. Raises InputError."""
    trace = with_longest_limit(premise.trace, setting.limit_s, exempt=premise.exempt)
    policy, spot = parse_policy(setting.policy), setting.spot
    options = replace(premise.options, cluster=setting.cluster)
    if spot is None:
        return trace, policy, options
    options = replace(
        options,
        cluster=spot.beside(setting.cluster),
        switching=spot.switching(options.switching),
        # The tenants around it change nothing of what a policy is told.
        forecast=resolved(options.forecast, policy, trace.jobs),
    )
    return spot.retold(trace, setting.cluster), with_turns(policy), options


def outcome_of(premise: Premise, cell: GridCell, progress: Progress | None = None) -> CellOutcome:
    """Returns what one cell does. Raises InputError."""
    trace, policy, options = scene_of(premise, cell.setting)
    submit_s = trace.jobs.submit_s
    first_s, span_s = float(submit_s[0]), max(float(submit_s[-1] - submit_s[0]), 1.0)

    def report(now: float) -> None:
        if progress is not None:
            progress(min((now - first_s) / span_s, 1.0))

    rows = fitting_rows(trace, options)
    if not len(rows):
        return _nothing(len(trace))
    result = simulate(trace, policy, options, progress=report)
    return _of_rows(trace, rows, result)


def _nothing(jobs: int) -> CellOutcome:
    """Returns the outcome of a cluster that no job fits."""
    never = np.full(jobs, np.nan)
    everybody, nobody = np.ones(jobs, bool), np.zeros(jobs, bool)
    stops = np.zeros(jobs, np.int64)
    return CellOutcome(never, never, never, everybody, nobody, stops, 0.0, 0.0, 0.0, None, 0.0)


def _of_rows(trace: Trace, rows: Ints, result: RunResult) -> CellOutcome:
    """Returns the outcome by rows of the whole trace, of which the run had `rows`."""
    jobs = result.jobs
    left_out = np.ones(len(trace), bool)
    left_out[rows] = False
    cut = np.zeros(len(trace), bool)
    timed_out = (jobs["end"] == ENDS[TIMEOUT]).to_numpy()
    # A job that the log shows at its limit ends so in every cell, after the same work.
    early = (trace.end[rows] != TIMEOUT) | (trace.jobs.time_limit_s < trace.duration_s)[rows]
    cut[rows] = timed_out & early

    def column(name: str) -> Floats:
        values = np.full(len(trace), np.nan)
        values[rows] = jobs[name].cast(pl.Float64).to_numpy()
        return values

    use = result.gpu_seconds
    stops = np.zeros(len(trace), np.int64)
    stops[rows] = jobs["preemptions"].to_numpy()
    return CellOutcome(
        jct_s=column("jct_s"),
        wait_s=column("wait_s"),
        time_to_start_s=column("time_to_start_s"),
        left_out=left_out,
        cut=cut,
        stops=stops,
        cut_held_gpu_s=float(jobs["service_gpu_s"].to_numpy()[cut[rows]].sum()),
        held_gpu_s=use["useful"] + use["slowdown"] + use["switching"],
        useful_gpu_s=use["useful"],
        gpu_utilization=result.number("gpu_utilization"),
        lasted_s=result.number("makespan_s") or 0.0,
    )


_premise: Premise | None = None
_done: MutableSequence[float] = []
"""The completed share of each cell of the current batch."""


def _set_up(premise: Premise, done: MutableSequence[float]) -> None:
    global _premise, _done
    set_up_worker()
    _premise, _done = premise, done


def _run(number: int, cell: GridCell) -> CellOutcome:
    assert _premise is not None

    def report(done: float) -> None:
        _done[number] = done

    return outcome_of(_premise, cell, report)


class CellRunner:
    """Runs batches of cells in the same processes; a context manager.

    One process, and policies that only this process knows, run here.
    """

    def __init__(self, premise: Premise, processes: int, policies: Sequence[str]) -> None:
        self._premise = premise
        alone = not all(is_known_anywhere(text) for text in policies)
        self._processes = 1 if alone else processes or cores()
        self._done: MutableSequence[float] = get_context("spawn").RawArray("d", CELLS_MAX)
        self._stack = ExitStack()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> CellRunner:
        if self._processes > 1:
            arguments = (self._premise, self._done)
            pool = working_pool(self._processes, _set_up, arguments)
            self._pool = self._stack.enter_context(pool)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trail: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trail)

    def run(self, cells: Sequence[GridCell], progress: Progress | None = None) -> list[CellOutcome]:
        """Returns the outcomes of cells, in their order. Raises InputError."""
        if self._pool is None:
            return [
                outcome_of(self._premise, cell, _share_of(progress, number, len(cells)))
                for number, cell in enumerate(cells)
            ]
        self._done[:] = [0.0] * CELLS_MAX
        with undisturbed():
            futures = [self._pool.submit(_run, n, cell) for n, cell in enumerate(cells)]
        waiting = set(futures)
        while waiting:
            ready, waiting = wait(waiting, POLL_S, FIRST_COMPLETED)
            for future in ready:
                future.result()  # Raises the error of the first cell that fails.
            if progress is not None:
                progress(sum(self._done) / len(cells))
        return [future.result() for future in futures]


def _share_of(progress: Progress | None, number: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done: progress((number + done) / total)
