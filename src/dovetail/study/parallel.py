"""Runs many simulations in parallel; the results do not depend on the number of processes.

Workers are spawned (threads of the data frame library do not survive a fork) and import only our
modules, never the user's script. A run of the whole trace returns its full result; a replicate
returns only the two numbers that intervals need, to bound memory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from threading import Thread, current_thread, main_thread
from types import ModuleType

from dovetail.core.errors import DovetailError
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from dovetail.study.run import simulate

POLL_S = 0.2
ENDINGS = (signal.SIGINT, signal.SIGTERM)
OURS = "dovetail.policies."
Progress = Callable[[float], None]
"""A callback with the completed share of all work."""


@dataclass(frozen=True)
class ReplayInput:
    """A trace and the options of its simulation."""

    trace: Trace
    options: Options


@dataclass(frozen=True, slots=True)
class Task:
    """One run: its scene (0 is the whole trace), and the name and the text of its policy.

    `forecast` replaces that of the scene. `can_win` is False for a row that nobody could choose.
    """

    scene: int
    name: str
    text: str
    forecast: str
    can_win: bool = True


@dataclass(frozen=True, slots=True)
class Flow:
    """The sum and the number of the counted JCTs of a run."""

    flow_s: float
    jobs: float


Runs = dict[str, RunResult]
Flows = dict[tuple[int, str], Flow]


def run_tasks(
    scenes: Sequence[ReplayInput],
    tasks: Sequence[Task],
    processes: int,
    baseline: str | None,
    progress: Progress | None,
) -> tuple[Runs, Flows]:
    """Returns the full results by policy, and the flows of all runs by scene and policy.

    With a baseline, keeps the spans of it and of the best policy only, since spans are by far the
    largest part of a result. Raises InputError.
    """
    results = _Results(baseline)
    count = min(len(tasks), processes or cores())
    if count == 1 or not all(is_known_anywhere(t.text) for t in tasks):
        _set_up(scenes, [0.0] * (len(tasks) + 1), baseline is not None)
        for number, task in enumerate(tasks):
            report = None if progress is None else _share_of(progress, number, len(tasks))
            results.add(task, *_run(number, task, report))
    else:
        _run_in_pool(scenes, tasks, count, results, progress)
    return results.runs, results.flows


def cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_known_anywhere(text: str) -> bool:
    """True if a new process can import the policy: one of ours, or one in a file."""
    if text.partition(":")[0].endswith(".py"):
        return True
    return type(parse_policy(text)).__module__.startswith(OURS)


def _share_of(progress: Progress, number: int, total: int) -> Progress:
    return lambda done: progress((number + done) / total)


class _Results:
    """Collects the results of runs, which arrive in any order."""

    def __init__(self, baseline: str | None) -> None:
        self.runs: Runs = {}
        self.flows: Flows = {}
        self.baseline = baseline
        self.can_win: set[str] = set()

    def add(self, task: Task, result: RunResult | None, flow: Flow) -> None:
        """Adds the result of one task, and drops spans that no plot shows."""
        self.flows[task.scene, task.name] = flow
        if result is None:
            return
        self.runs[task.name] = result
        if task.can_win:
            self.can_win.add(task.name)
        best = min(self.can_win, key=lambda n: (self._mean_s(n), n), default="")
        for name, run in self.runs.items():
            if name not in (best, self.baseline) and len(run.spans):
                self.runs[name] = replace(run, spans=run.spans.clear())

    def _mean_s(self, name: str) -> float:
        mean_s = self.runs[name].number("avg_jct_s")
        return float("inf") if mean_s is None else mean_s


STOP = -1
_scenes: Sequence[ReplayInput] = ()
_done: MutableSequence[float] = []
"""The completed share of each task; the last entry is a flag that stops all runs."""
_keep_spans = False


def _set_up(scenes: Sequence[ReplayInput], done: MutableSequence[float], keep_spans: bool) -> None:
    global _scenes, _done, _keep_spans
    _scenes, _done, _keep_spans = scenes, done, keep_spans


def set_up_worker() -> None:
    """Makes a new worker process exit with the command, and on an interrupt."""
    # Ctrl-C interrupts the workers along with the command: they exit silently.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    Thread(target=_leave_with_parent, daemon=True).start()


def _set_up_runs(
    scenes: Sequence[ReplayInput], done: MutableSequence[float], keep_spans: bool
) -> None:
    set_up_worker()
    _set_up(scenes, done, keep_spans)


def _leave_with_parent() -> None:
    """Waits for the command to exit, even if it is killed, and exits this worker."""
    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _run(number: int, task: Task, progress: Progress | None) -> tuple[RunResult | None, Flow]:
    scene = _scenes[task.scene]
    submit = scene.trace.jobs.submit_s
    first_s, span_s = float(submit[0]), max(float(submit[-1] - submit[0]), 1.0)

    def report(now: float) -> None:
        done = min((now - first_s) / span_s, 1.0)
        if progress is not None:
            progress(done)
        _done[number] = done
        if _done[STOP]:
            raise DovetailError("stopped")

    whole = task.scene == 0
    result = simulate(
        scene.trace,
        parse_policy(task.text),
        replace(scene.options, forecast=task.forecast),
        keep_spans=whole and _keep_spans,
        progress=report,
    )
    flow_s, mean_s = result.number("total_flow_s") or 0.0, result.number("avg_jct_s")
    flow = Flow(flow_s, float(round(flow_s / mean_s)) if mean_s else 0.0)
    return (result if whole else None), flow


def _run_in_pool(
    scenes: Sequence[ReplayInput],
    tasks: Sequence[Task],
    processes: int,
    results: _Results,
    progress: Progress | None,
) -> None:
    done = get_context("spawn").RawArray("d", len(tasks) + 1)
    arguments = (scenes, done, results.baseline is not None)
    with working_pool(processes, _set_up_runs, arguments) as pool:
        try:
            with undisturbed():
                waiting = {pool.submit(_run, i, t, None): t for i, t in enumerate(tasks)}
            while waiting:
                ready, _ = wait(waiting, POLL_S, FIRST_COMPLETED)
                for future in ready:
                    results.add(waiting.pop(future), *future.result())
                if progress is not None:
                    progress(sum(done[:-1]) / len(tasks))
        except BaseException:
            done[STOP] = 1.0
            raise


@contextmanager
def working_pool(
    processes: int, set_up: Callable[..., None], arguments: tuple[object, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of new processes; an error terminates them at once. Raises DovetailError."""
    with ProcessPoolExecutor(processes, get_context("spawn"), set_up, arguments) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise DovetailError(
                "a worker process was killed, perhaps for lack of memory: use fewer --processes"
            ) from None
        except BaseException:
            # An idle worker may miss the shutdown of the pool, which would then wait for it.
            workers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
            raise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hides the user's script while workers start, as they would run it again.

    Signals are blocked meanwhile, also in the workers, which unblock them after their imports.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        with _deferred_signals():
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Defers signals to the end of the block, whichever thread receives them.

    A signal mask covers one thread only: a thread of a library would still receive the signal, and
    a worker that is starting would then read incomplete data.
    """
    if current_thread() is not main_thread():
        yield
        return
    received: list[int] = []
    usual = {n: signal.signal(n, lambda number, _: received.append(number)) for n in ENDINGS}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for ending in dict.fromkeys(received):
            signal.raise_signal(ending)
