"""What it costs a training job when workers come and go: pauses, restarts, bursts of orders.

    python -m benchmarks.elastic [--only pauses|restart|burst] [--rounds N]

All on this machine, by gloo over loopback. AFS (NSDI 2021), section 4.3, Figures 1 and 8.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from dovetail.train.rehearsal import Rehearsal
from dovetail.wire.worker import Checkpoint, Entered, Ready, Saved

WORKER = Path(__file__).with_name("elastic_worker.py")
FORKS = multiprocessing.get_context("forkserver")
SIZES_MB = (0.1, 2.0, 20.0, 100.0)
BURST, BURST_GAP_S, SIZES_OF_BURST = 20, 0.5, (1, 2, 3, 4)
BATCH, SAMPLE_S, BURST_SAMPLES, START_S = 32, 0.004, 20_000, 3.0


class ForkedWorker:
    """A worker forked from a process that has imported torch: switches are measured, not starts."""

    def __init__(
        self, work: Callable[..., None], arguments: Sequence[object], environment: dict[str, str]
    ) -> None:
        self._process = FORKS.Process(target=_work, args=(work, arguments, environment))
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _work(
    work: Callable[..., None], arguments: Sequence[object], environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    work(*arguments)


def forked(work: Callable[..., None], *arguments: object) -> Rehearsal:
    """Returns a rehearsal whose workers call `work` in a forked process."""
    return Rehearsal(partial(ForkedWorker, work, arguments))


def on_two_workers(work: Callable[..., None], *arguments: object) -> None:
    """Runs a job of two workers to its end."""
    with forked(work, *arguments) as job:
        job.start(0, 1)
        job.entered(job.regroup(0, 1))
        assert job.ended(0, 1) == [0, 0]


def elastic_worker(words: Sequence[str]) -> None:
    """Trains as `elastic_worker` does, which imports torch only here."""
    from benchmarks.elastic_worker import main

    main(list(words))


@contextmanager
def stage(*words: str, forks: bool) -> Iterator[tuple[Rehearsal, Path]]:
    """Gives a rehearsal of the job, and the folder its workers write to."""
    with tempfile.TemporaryDirectory(prefix="dvb") as place:
        log = Path(place)
        words = (*words, "--log", str(log))
        if forks:
            rehearsal = forked(elastic_worker, words)
        else:
            rehearsal = Rehearsal.of_script(WORKER, *words)
        with rehearsal:
            yield rehearsal, log


def lines(log: Path, number: int) -> list[dict[str, float]]:
    """Returns what a worker wrote down; the last line may be half written."""
    path = log / f"{number}.jsonl"
    told = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            told.append(json.loads(line))
    return told


def steps(log: Path, number: int) -> list[dict[str, float]]:
    return [line for line in lines(log, number) if "step" in line]


def milliseconds(values: Sequence[float]) -> str:
    """Returns median, 90th percentile and greatest."""
    ordered = sorted(values)
    p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return " / ".join(f"{1000 * v:.1f}" for v in (statistics.median(ordered), p90, ordered[-1]))


# Pauses: how long the loop stands still at a switch, and how long the steps after it take.


def pauses(rounds: int) -> None:
    print(
        f"{rounds} rounds of 1 -> 2 -> 4 -> 2 -> 1 workers; median / 90th percentile / most, in ms"
    )
    head = ("parameters", "state is sent", "growing", "shrinking")
    head += ("longest step after growing", "a step", "steps to catch up")
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    for size_mb in SIZES_MB:
        for how in ("while training", "at the switch"):
            row = pauses_of(size_mb, rounds, at_once=how == "at the switch")
            print(f"| {size_mb:g} MB | {how} | {row} |", flush=True)


def pauses_of(size_mb: float, rounds: int, *, at_once: bool) -> str:
    words = ["--megabytes", str(size_mb), *(["--at-once"] if at_once else [])]
    grown: list[float] = []
    shrunk: list[float] = []
    after: list[float] = []
    behind: list[float] = []
    with stage(*words, forks=True) as (job, log):
        job.start(0)
        job.entered(job.regroup(0))
        for round_ in range(rounds):
            a, b, c = (1 + 3 * round_ + i for i in range(3))
            grown += changed(job, log, (0, a), fresh=(a,))
            after.append(longest_of_next(job, log, 8))
            behind.append(caught_up(job, log, a))
            grown += changed(job, log, (0, a, b, c), fresh=(b, c))
            after.append(longest_of_next(job, log, 8))
            behind += [caught_up(job, log, n) for n in (b, c)]
            shrunk += changed(job, log, (0, a))
            shrunk += changed(job, log, (0,))
        told = steps(log, 0)
        assert [s["step"] for s in told] == list(range(1, len(told) + 1)), "a step was lost"
        usual_s = statistics.median(s["to_s"] - s["from_s"] for s in told)
    return (
        f"{milliseconds(grown)} | {milliseconds(shrunk)} | {milliseconds(after)} | "
        f"{1000 * usual_s:.0f} | {statistics.median(behind):.0f}"
    )


def changed(
    job: Rehearsal, log: Path, members: tuple[int, ...], *, fresh: tuple[int, ...] = ()
) -> list[float]:
    """Returns the pauses of those who trained before, once a few steps were made after it."""
    job.start(*fresh)
    job.until(lambda: all(job.workers[n].peer for n in fresh))
    entered = job.entered(job.regroup(*members), 120)
    some_steps(job, log, 4)
    return [e.pause_s for n, e in zip(members, entered, strict=True) if n not in fresh]


def some_steps(job: Rehearsal, log: Path, count: int) -> int:
    """Waits for some steps; returns how many there were before."""
    before = len(steps(log, 0))
    job.until(lambda: len(steps(log, 0)) >= before + count, 120)
    return before


def longest_of_next(job: Rehearsal, log: Path, count: int) -> float:
    """Returns the longest time between two steps around the last switch."""
    before = some_steps(job, log, count)
    ends = [s["to_s"] for s in steps(log, 0)][max(0, before - 6) :]
    return max(after - at for at, after in pairwise(ends))


def caught_up(job: Rehearsal, log: Path, number: int) -> float:
    """Returns the steps between a worker's entry and its first samples."""
    job.until(lambda: bool(steps(log, number)), 120)
    return steps(log, number)[0]["step"] - 1 - job.all_said(number, Entered)[0].step


# A full restart, by phase: what a job costs that must be stopped to change its workers.


def restart(rounds: int) -> None:
    print(f"\nfull restart of 2 workers, {rounds} times; medians in seconds")
    names = ("save", "processes end", "Python starts", "import", "build", "load, connect, send")
    print("| parameters | " + " | ".join((*names, "first step", "all")) + " |")
    print("| --- " * (len(names) + 3) + "|")
    for size_mb in SIZES_MB:
        found = [restart_of(size_mb) for _ in range(rounds)]
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        cells = " | ".join(f"{m:.2f}" for m in (*medians, sum(medians)))
        print(f"| {size_mb:g} MB | {cells} |", flush=True)


def restart_of(size_mb: float) -> list[float]:
    with stage("--megabytes", str(size_mb), forks=False) as (job, log):
        job.start(0, 1)
        job.entered(job.regroup(0, 1), 120)
        some_steps(job, log, 5)
        told_s, told = time.time(), time.monotonic()
        job.tell(Checkpoint(leave=True))
        job.ended(0, 1, timeout_s=120)
        ended_s = time.time()
        (saved,) = (at for at, m in job.workers[0].said if isinstance(m, Saved))
        saved_s = told_s + saved - told
        job.start(2, 3)
        entered = job.entered(job.regroup(2, 3), 120)
        entered_s = told_s + max(
            at - told for n in (2, 3) for at, m in job.workers[n].said if isinstance(m, Entered)
        )
        assert entered[0].step > 0
        job.until(lambda: bool(steps(log, 2)), 120)
        start, first = lines(log, 2)[0], steps(log, 2)[0]
    return [
        saved_s - told_s,
        ended_s - saved_s,
        start["began_s"] - ended_s,
        start["imported_s"] - start["began_s"],
        start["built_s"] - start["imported_s"],
        entered_s - start["built_s"],
        first["to_s"] - entered_s,
    ]


# A burst of orders, of which only the last is worth carrying out.


def burst() -> None:
    draw = random.Random(3)
    sizes = [draw.choice(SIZES_OF_BURST) for _ in range(BURST - 1)] + [4]
    print(f"\n{BURST} orders, one every {BURST_GAP_S} s, for {sizes} workers;")
    print(f"{BURST_SAMPLES} samples of {SAMPLE_S} s; a worker takes {START_S} s to start")
    print("| how | last order in force after | samples by then | generations entered |", end="")
    print(" time to finish | |\n| --- | --- | --- | --- | --- | --- |")
    ways = (
        ("newer orders cancel older ones", Burst.cancelling),
        ("each order is carried out", Burst.in_turn),
        ("each order is a full restart", Burst.restarting),
    )
    fastest = 0.0
    for name, way in ways:
        result = run_burst(sizes, way)
        fastest = fastest or result.finished_s
        print(
            f"| {name} | {result.settled_s:.1f} s | {result.samples} | {result.entered} | "
            f"{result.finished_s:.1f} s | {result.finished_s / fastest:.1f}x |",
            flush=True,
        )


@dataclass(frozen=True, slots=True)
class BurstResult:
    settled_s: float
    samples: int
    entered: int
    finished_s: float


class Burst:
    """One job under a list of orders that come at fixed times."""

    def __init__(self, job: Rehearsal, sizes: Sequence[int]) -> None:
        self.job, self.sizes = job, sizes
        self.members: list[int] = [0]
        self.next = 1
        job.start(0)
        job.entered(job.regroup(0), 120)
        self.began = time.monotonic()

    def wait_for_order(self, index: int) -> None:
        """Sleeps until an order comes; one that came long ago is there."""
        time.sleep(max(0.0, self.began + BURST_GAP_S * index - time.monotonic()))

    def resize(self, size: int) -> int:
        """Orders so many workers: the oldest stay, new ones are started."""
        fresh = list(range(self.next, self.next + max(0, size - len(self.members))))
        self.next += len(fresh)
        gone = self.members[size:]
        self.members = [*self.members[:size], *fresh]
        self.job.start(*fresh)
        order = self.job.regroup(*self.members)
        for number in gone:
            if not self.job.all_said(number, Ready):  # an agent ends whom nobody wants any more
                self.job.workers[number].process.kill()
        return order

    def cancelling(self) -> None:
        for index, size in enumerate(self.sizes):
            self.wait_for_order(index)
            order = self.resize(size)
        self.job.entered(order, 300)

    def in_turn(self) -> None:
        for index, size in enumerate(self.sizes):
            self.wait_for_order(index)
            if size != len(self.members):
                self.job.entered(self.resize(size), 300)

    def restarting(self) -> None:
        for index, size in enumerate(self.sizes):
            self.wait_for_order(index)
            if size == len(self.members):
                continue
            self.job.tell(Checkpoint(leave=True))
            self.job.ended(*self.members, timeout_s=300)
            self.members = []
            self.job.entered(self.resize(size), 300)


def run_burst(sizes: Sequence[int], way: Callable[[Burst], None]) -> BurstResult:
    words = ["--megabytes", "2", "--sample-s", str(SAMPLE_S), "--batch-size", str(BATCH)]
    words += ["--samples", str(BURST_SAMPLES), "--start-s", str(START_S)]
    with stage(*words, forks=True) as (job, log):
        scene = Burst(job, sizes)
        way(scene)
        settled_s = time.monotonic() - scene.began
        done = max(s["samples"] for n in job.workers for s in steps(log, n))
        job.ended(*scene.members, timeout_s=300)
        finished_s = time.monotonic() - scene.began
        generations = {e.generation for n in job.workers for e in job.all_said(n, Entered)}
    return BurstResult(settled_s, int(done), len(generations) - 1, finished_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("pauses", "restart", "burst"))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    FORKS.set_forkserver_preload(["torch._dynamo", "benchmarks.elastic_worker"])
    if options.only in (None, "pauses"):
        pauses(options.rounds)
    if options.only in (None, "restart"):
        restart(max(1, options.rounds // 3))
    if options.only in (None, "burst"):
        burst()


if __name__ == "__main__":
    main()
