"""Runs the cells of a grid in parallel: one trace, which the processes share, and many settings.

A worker receives the trace once and sends back only what a table needs, so a grid of many cells
takes little memory. The outcomes do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
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
from dovetail.study.demand import DRAWS, with_demand
from dovetail.study.inferred import with_inferred_capacity
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
from dovetail.study.types_for import speeds_of, with_nodes_for, with_types


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
    Of several draws of the jobs it has the means, and `draws` each of them.
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
    draws: tuple[CellOutcome, ...] = ()

    @property
    def each(self) -> tuple[CellOutcome, ...]:
        """Returns the draws, or this alone."""
        return self.draws or (self,)


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
    policy, spot, also = parse_policy(setting.policy), setting.spot, setting.types_for
    trace, cluster = with_types(trace, also), with_nodes_for(setting.cluster, also)
    options = replace(premise.options, cluster=cluster, type_speeds=speeds_of(also))
    if spot is None:
        return trace, policy, options
    options = replace(
        options,
        cluster=spot.beside(cluster),
        switching=spot.switching(options.switching),
        # The tenants around it change nothing of what a policy is told.
        forecast=resolved(options.forecast, policy, trace.jobs),
    )
    return spot.retold(trace, cluster), with_turns(policy), options


def outcome_of(premise: Premise, cell: GridCell, progress: Progress | None = None) -> CellOutcome:
    """Returns what one cell does. Raises InputError."""
    scene, factor = scene_of(premise, cell.setting), cell.setting.demand
    if factor == 1.0:
        return _outcome(scene, np.arange(len(premise.trace)), progress)
    trace, policy, options = scene
    # The copies have no record, from which the capacity could be inferred.
    options, _ = with_inferred_capacity(options, trace)
    found = []
    for draw in range(DRAWS):
        drawn, rows = with_demand(trace, factor, options.seed + draw)
        share = _share_of(progress, draw, DRAWS)
        found.append(_outcome((drawn, policy, options), rows, share))
    return _mean_of(found)


def _outcome(
    scene: tuple[Trace, Policy, Options], rows: Ints, progress: Progress | None
) -> CellOutcome:
    """Returns the outcome of a run for the jobs in some of its rows, -1 for a job it has not."""
    trace, policy, options = scene
    submit_s = trace.jobs.submit_s
    first_s, span_s = float(submit_s[0]), max(float(submit_s[-1] - submit_s[0]), 1.0)

    def report(now: float) -> None:
        if progress is not None:
            progress(min((now - first_s) / span_s, 1.0))

    fitting = fitting_rows(trace, options)
    if not len(fitting):
        return _nothing(len(rows))
    return _of_rows(trace, fitting, rows, simulate(trace, policy, options, progress=report))


def _mean_of(draws: Sequence[CellOutcome]) -> CellOutcome:
    """Returns the mean of several draws; a job counts in those that have it."""

    def mean(of: Callable[[CellOutcome], Floats]) -> Floats:
        values = np.array([of(draw) for draw in draws])
        has = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(has, values, 0.0).sum(axis=0) / has.sum(axis=0))

    def average(of: Callable[[CellOutcome], float | None]) -> float:
        return float(np.mean([of(draw) or 0.0 for draw in draws]))

    return CellOutcome(
        jct_s=mean(lambda d: d.jct_s),
        wait_s=mean(lambda d: d.wait_s),
        time_to_start_s=mean(lambda d: d.time_to_start_s),
        left_out=np.any([d.left_out for d in draws], axis=0),
        cut=np.any([d.cut for d in draws], axis=0),
        stops=np.rint(np.mean([d.stops for d in draws], axis=0)).astype(np.int64),
        cut_held_gpu_s=average(lambda d: d.cut_held_gpu_s),
        held_gpu_s=average(lambda d: d.held_gpu_s),
        useful_gpu_s=average(lambda d: d.useful_gpu_s),
        gpu_utilization=average(lambda d: d.gpu_utilization),
        lasted_s=average(lambda d: d.lasted_s),
        draws=tuple(draws),
    )


def _nothing(jobs: int) -> CellOutcome:
    """Returns the outcome of a cluster that no job fits."""
    never = np.full(jobs, np.nan)
    everybody, nobody = np.ones(jobs, bool), np.zeros(jobs, bool)
    stops = np.zeros(jobs, np.int64)
    return CellOutcome(never, never, never, everybody, nobody, stops, 0.0, 0.0, 0.0, None, 0.0)


def _of_rows(trace: Trace, fitting: Ints, rows: Ints, result: RunResult) -> CellOutcome:
    """Returns the outcome for some rows of a trace, of which the run had those that fit."""
    jobs, there = result.jobs, rows >= 0
    timed_out = (jobs["end"] == ENDS[TIMEOUT]).to_numpy()
    # A job that the log shows at its limit ends so in every cell, after the same work.
    early = (trace.end[fitting] != TIMEOUT) | (trace.jobs.time_limit_s < trace.duration_s)[fitting]

    def column(values: Floats, missing: float) -> Floats:
        known = np.full(len(trace), missing)
        known[fitting] = values
        return np.asarray(np.where(there, known[rows], missing))

    def times(name: str) -> Floats:
        return column(jobs[name].cast(pl.Float64).to_numpy(), np.nan)

    use = result.gpu_seconds
    cut = column(timed_out & early, 0.0).astype(bool)
    held_gpu_s = column(jobs["service_gpu_s"].to_numpy(), 0.0)
    return CellOutcome(
        jct_s=times("jct_s"),
        wait_s=times("wait_s"),
        time_to_start_s=times("time_to_start_s"),
        left_out=there & ~column(np.ones(len(fitting)), 0.0).astype(bool),
        cut=cut,
        stops=column(jobs["preemptions"].to_numpy(), 0.0).astype(np.int64),
        cut_held_gpu_s=float(held_gpu_s[cut].sum()),
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
