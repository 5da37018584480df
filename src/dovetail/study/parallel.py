"""Many runs at once, one process each: the same answers whatever the number of processes.

Workers start afresh (threads of the data frame library do not survive a fork) and import only
what is ours, never the user's script. A run of the whole trace comes back entire; a replicate
comes back as the two numbers that intervals need, so that memory does not grow with them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
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
"""Is told which share of all the work is done."""


@dataclass(frozen=True)
class ReplayInput:
    """A trace and the options it is replayed with."""

    trace: Trace
    options: Options


@dataclass(frozen=True, slots=True)
class Task:
    """One run: the scene (0 is the whole trace), the policy's name and the text it was given as."""

    scene: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The sum of the JCTs that count in a run, and how many they are."""

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
    """Returns the whole runs by policy, and the flows of every run by scene and policy.

    With a baseline, spans are kept of it and of the best policy; of no other, since they
    are by far the largest part of a result. Raises InputError.
    """
    kept = _Kept(baseline)
    count = min(len(tasks), processes or cores())
    if count == 1 or not all(_is_known_anywhere(t.text) for t in tasks):
        _set_up(scenes, [0.0] * (len(tasks) + 1), baseline is not None)
        for number, task in enumerate(tasks):
            tell = None if progress is None else _share_of(progress, number, len(tasks))
            kept.add(task, *_run(number, task, tell))
    else:
        _run_in_pool(scenes, tasks, count, kept, progress)
    return kept.runs, kept.flows


def cores() -> int:
    """Returns the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_known_anywhere(text: str) -> bool:
    """Tells whether a fresh process would find the policy: ours, or one in a file."""
    if text.partition(":")[0].endswith(".py"):
        return True
    return type(parse_policy(text)).__module__.startswith(OURS)


def _share_of(progress: Progress, number: int, total: int) -> Progress:
    return lambda done: progress((number + done) / total)


class _Kept:
    """What is kept of the runs as they come in, in any order."""

    def __init__(self, baseline: str | None) -> None:
        self.runs: Runs = {}
        self.flows: Flows = {}
        self._baseline = baseline

    @property
    def with_spans(self) -> bool:
        """Tells whether any spans are wanted."""
        return self._baseline is not None

    def add(self, task: Task, result: RunResult | None, flow: Flow) -> None:
        """Takes the outcome of one task and drops the spans that no picture will show."""
        self.flows[task.scene, task.name] = flow
        if result is None:
            return
        self.runs[task.name] = result
        best = min(self.runs, key=lambda n: (self._mean_s(n), n))
        for name, run in self.runs.items():
            if name not in (best, self._baseline) and len(run.spans):
                self.runs[name] = replace(run, spans=run.spans.clear())

    def _mean_s(self, name: str) -> float:
        mean_s = self.runs[name].number("avg_jct_s")
        return float("inf") if mean_s is None else mean_s


STOP = -1
_scenes: Sequence[ReplayInput] = ()
_done: MutableSequence[float] = []
"""The share done of each task, and last a flag that tells all runs to stop."""
_keep_spans = False


def _set_up(scenes: Sequence[ReplayInput], done: MutableSequence[float], keep_spans: bool) -> None:
    global _scenes, _done, _keep_spans
    _scenes, _done, _keep_spans = scenes, done, keep_spans


def set_up_worker() -> None:
    """Makes a fresh worker process end with the command, and at an interrupt."""
    # Whoever interrupts the command interrupts the workers too: they leave without a word.
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
    """Waits for the end of the command, which may be killed, and ends this worker with it."""
    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _run(number: int, task: Task, progress: Progress | None) -> tuple[RunResult | None, Flow]:
    scene = _scenes[task.scene]
    submit = scene.trace.jobs.submit_s
    first_s, span_s = float(submit[0]), max(float(submit[-1] - submit[0]), 1.0)

    def tell(now: float) -> None:
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
        scene.options,
        keep_spans=whole and _keep_spans,
        progress=tell,
    )
    flow_s, mean_s = result.number("total_flow_s") or 0.0, result.number("avg_jct_s")
    flow = Flow(flow_s, float(round(flow_s / mean_s)) if mean_s else 0.0)
    return (result if whole else None), flow


def _quiet(share: float) -> None:
    """Tells nobody."""


def _run_task(number: int, task: Task) -> tuple[RunResult | None, Flow]:
    return _run(number, task, None)


def _run_in_pool(
    scenes: Sequence[ReplayInput],
    tasks: Sequence[Task],
    processes: int,
    kept: _Kept,
    progress: Progress | None,
) -> None:
    done = get_context("spawn").RawArray("d", len(tasks) + 1)
    given = (scenes, done, kept.with_spans)
    with working_pool(processes, _set_up_runs, given) as pool:
        try:
            with undisturbed():
                waiting = {pool.submit(_run_task, i, t): t for i, t in enumerate(tasks)}
            _collect(waiting, kept, lambda: (progress or _quiet)(sum(done[:-1]) / len(tasks)))
        except BaseException:
            done[STOP] = 1.0
            raise


@contextmanager
def working_pool(
    processes: int, set_up: Callable[..., None], given: tuple[object, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Yields a pool of fresh processes, which an error ends at once, whatever they are doing."""
    with ProcessPoolExecutor(processes, get_context("spawn"), set_up, given) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise DovetailError(
                "a run was ended from outside, perhaps for want of memory: use fewer --processes"
            ) from None
        except BaseException:
            # An idle worker may be told nothing when the pool is shut down now, and be waited for.
            workers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
            raise


def _collect(
    waiting: dict[Future[tuple[RunResult | None, Flow]], Task],
    kept: _Kept,
    tell: Callable[[], None],
) -> None:
    while waiting:
        ready, _ = wait(waiting, POLL_S, FIRST_COMPLETED)
        for future in ready:
            kept.add(waiting.pop(future), *future.result())
        tell()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hides the user's script while workers start, which would otherwise run it again.

    Signals wait meanwhile, also in the workers, where they are let in once all is imported.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        with _noted_for_later():
            yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _noted_for_later() -> Iterator[None]:
    """Keeps endings back from the main thread, whichever thread of ours they were sent to.

    A mask holds for one thread only: a library's thread would take the signal all the same, and
    a worker that is half started then reads half of what it was to be told.
    """
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    usual = {n: signal.signal(n, lambda number, _: came.append(number)) for n in ENDINGS}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for ending in dict.fromkeys(came):
            signal.raise_signal(ending)
