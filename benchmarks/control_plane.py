"""The control plane under load: answers, submits, memory (decisions: benchmarks.decisions).

    python -m benchmarks.control_plane [--only answers|memory|listing] [--jobs 10000]
        [--nodes 125] [--finished 100000] [--policy fifo]

Memory: the real controller, store and agents in virtual time, in this process.
Answers and submits: a cluster of real processes, asked over its socket and by whole commands.
Listing: a server and a store of many finished jobs, asked for pages of `ls` over its socket.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live_play import LiveCluster, live_cluster
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.live.client.client import Client
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.server.messages.cluster import PingReply
from dovetail.live.server.request_handler import RequestHandler, ServerInfo
from dovetail.live.server.server import Server
from dovetail.live.serving.virtual_live import play
from dovetail.live.store.database import Database
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store, add_jobs
from dovetail.study.traces import with_models
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

GPUS = 8
TASKS = 1000
"""Jobs that one array holds."""


def percentile(values: list[float], part: float) -> float:
    """Returns the nearest rank, in milliseconds."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] * 1e3


def resident_mib(process: int) -> float:
    """Returns the memory that a process holds."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise LookupError(process)


def crowd(waiting: int, gpus: int, seed: int = 0) -> Trace:
    """Returns so many jobs at once that as many wait when every GPU is held, and some later."""
    rng = np.random.default_rng(seed)
    first, later = waiting + gpus // 2, 300
    submit_s = np.concatenate([np.zeros(first), np.sort(rng.uniform(60, 600, later))])
    count = first + later
    asked = rng.choice([1, 1, 2, 4, 8], count).astype(np.int64)
    elastic = rng.uniform(size=count) < 0.5
    jobs = JobTable.build(
        [str(n) for n in range(1, count + 1)],
        submit_s,
        asked,
        min_gpus=np.where(elastic, 1, asked),
        max_gpus=np.where(elastic, 8, asked),
        elastic=elastic,
        shareable=rng.uniform(size=count) < 0.5,
    )
    return with_models(Trace.of(jobs, np.exp(rng.normal(8, 1, count)), "crowd"), seed)


def asked(what: str, ask: Callable[[], object], times: int = 60) -> None:
    """Prints how long one kind of question takes."""
    took_s = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        took_s.append(time.perf_counter() - began)
    print(
        f"| {what} | {percentile(took_s, 0.5):.0f} ms | {percentile(took_s, 0.99):.0f} ms |",
        flush=True,
    )


def command(home: Path, *words: str) -> None:
    """Runs a command as a user would."""
    line = [sys.executable, "-m", "dovetail", words[0], "--home", str(home), *words[1:]]
    subprocess.run(line, check=True, capture_output=True)


def answers(policy: str, waiting: int, nodes: int) -> None:
    """Says how long questions and submits take while so many jobs wait, and what that holds."""
    spec = JobSpec("train", (), "/", gpus=1, duration_s=20_000.0, paced=True, model="resnet50")
    with live_cluster(f"emulated:{nodes}x{GPUS}", policy) as cluster:
        controller = cluster.client.ping().pid
        print(f"\nAnswers, {nodes * GPUS} GPUs, {policy} (load {os.getloadavg()[0]:.1f})\n")
        print(f"controller: {resident_mib(controller):.0f} MiB when it is up", end="; ")
        client = cluster.client
        wanted = waiting + nodes * GPUS
        for first in range(0, wanted, TASKS):
            client.submit(Submission(spec, tuple(range(min(TASKS, wanted - first)))))
        _until_placed(cluster, nodes * GPUS)
        print(f"{resident_mib(controller):.0f} MiB with {waiting:,} that wait\n")
        print("| what | p50 | p99 |\n| --- | --- | --- |")
        home, held = cluster.home, nodes * GPUS
        waits = client.jobs(limit=held + 200).jobs[-1].job
        name = f"{1 + (waits - 1) // TASKS * TASKS}_{(waits - 1) % TASKS}"
        asked("`ls` over the socket (200 rows)", client.jobs)
        asked("`ls` of all that run or wait", lambda: client.jobs(limit=100_000), 10)
        asked("`why` over the socket", lambda: client.why(waits))
        asked("`show` over the socket", lambda: client.show(waits))
        asked("`ls`, whole command", lambda: command(home, "ls"), 10)
        asked("`why`, whole command", lambda: command(home, "why", name), 10)
        submits(home, spec)


def _until_placed(cluster: LiveCluster, gpus: int) -> None:
    deadline = time.monotonic() + 120
    while dict(cluster.client.jobs(limit=1).counts).get("RUNNING", 0) < gpus:
        if time.monotonic() > deadline:
            raise TimeoutError("not every GPU is held")
        time.sleep(0.2)


def submits(home: Path, spec: JobSpec, each: int = 300) -> None:
    """Says how many durable submits a second clients of their own get done."""
    print("\n| clients | durable submits a second | p50 | p99 |\n| --- | --- | --- | --- |")
    for clients in (1, 4, 16):
        with multiprocessing.get_context("spawn").Pool(clients) as pool:
            pool.map(_ready, range(clients))
            began = time.perf_counter()
            took_s = pool.starmap(_submit, [(home, spec, each)] * clients, chunksize=1)
            wall_s = time.perf_counter() - began
        every = [s for one in took_s for s in one]
        print(
            f"| {clients} | {len(every) / wall_s:.0f} | {percentile(every, 0.5):.1f} ms"
            f" | {percentile(every, 0.99):.1f} ms |",
            flush=True,
        )


def _ready(_: int) -> None:
    """Lets a client import what it needs before the clock runs."""


def _submit(home: Path, spec: JobSpec, each: int) -> list[float]:
    client, took_s = Client(home), []
    for _ in range(each):
        began = time.perf_counter()
        client.submit(spec)
        took_s.append(time.perf_counter() - began)
    return took_s


def memory(finished: int, nodes: int) -> None:
    """Says what the controller holds while many short jobs come and go."""
    rng = np.random.default_rng(0)
    submit_s = np.cumsum(rng.exponential(20.0 / (nodes * GPUS), finished))
    jobs = JobTable.build(
        [str(n) for n in range(1, finished + 1)], submit_s, np.ones(finished, np.int64)
    )
    trace = Trace.of(jobs, np.full(finished, 10.0), "short")
    before = resident_mib(os.getpid())
    began = time.perf_counter()
    cluster = Cluster.uniform(nodes, GPUS)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        store = Path(folder) / "store.db"
        queries = play(trace, "fifo", cluster, {}, report_s=300.0, store_at=store)
        wall_s = time.perf_counter() - began
        counts = {str(state): jobs for state, jobs in queries.counts().items()}
    held = resident_mib(os.getpid())
    print(f"\n{counts} in {wall_s:.0f} s: controller, clocks, trace {before:.0f} -> {held:.0f} MiB")


def listing(finished: Sequence[int], waiting: int = 1000, rounds: int = 3) -> None:
    """Says how long pages take beside so many finished jobs: medians of some rounds.

    All stores are asked in turn, so that other work on the machine slows each of them alike.
    """
    print(f"\n{waiting:,} waiting (load {os.getloadavg()[0]:.1f})\n")
    print(
        f"| page | {' | '.join(f'p50, p99 with {n:,} finished' for n in finished)} | p99 grows by |"
    )
    print("| --- |" + " --- |" * (len(finished) + 1))
    with ExitStack() as stack:
        clients = [stack.enter_context(_served(count, waiting)) for count in finished]
        for what, words in PAGES.items():
            asks = [partial(client.jobs, limit=50, **words) for client in clients]
            found = [[_percentiles(took) for took in _in_turn(asks)] for _ in range(rounds)]
            ms = np.median(found, axis=0)
            cells = " | ".join(f"{p50:.1f}, {p99:.1f} ms" for p50, p99 in ms)
            print(f"| `{what}` | {cells} | {ms[-1][1] / ms[0][1]:.1f} |", flush=True)


@contextmanager
def _served(finished: int, waiting: int) -> Iterator[Client]:
    """Yields a client of a server on a store with so many jobs."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Folder(Path(name))
        _fill(folder.store, finished, waiting)
        snapshot = StatusSnapshot(0.0, "", 0.0, nodes=())
        info = ServerInfo(PingReply(0, 0, "", "", "", "", 0.0), folder)
        desk = RequestHandler(info, None, lambda: snapshot, lambda: 0.0)
        server = Server(desk, folder.socket)
        server.start()
        with closing(Client(folder.home)) as client:
            yield client
        server.stop()


def _in_turn(asks: Sequence[Callable[[], object]], times: int = 200) -> list[list[float]]:
    """Returns how long each of some questions took each time, in seconds."""
    took_s: list[list[float]] = [[] for _ in asks]
    for _ in range(times):
        for ask, took in zip(asks, took_s, strict=True):
            began = time.perf_counter()
            ask()
            took.append(time.perf_counter() - began)
    return took_s


def _percentiles(took_s: list[float]) -> tuple[float, float]:
    return percentile(took_s, 0.5), percentile(took_s, 0.99)


GROUPED = {"group_arrays": True}
ENDED = {"ended": True, "group_arrays": True}
HISTORY = {"states": tuple(sorted(TERMINAL))}
PAGES: dict[str, dict[str, Any]] = {
    "ls": GROUPED,
    "ls --user ann": {**GROUPED, "user": "ann"},
    "ls --name train": {**GROUPED, "name": "train"},
    "ls --all": ENDED,
    "ls --all --page 15": {**ENDED, "offset": 700},
    "ls --all --user ann": {**ENDED, "user": "ann"},
    "ls --all --name train": {**ENDED, "name": "train"},
    "ls --state COMPLETED": {"states": ("COMPLETED",)},
    "ls --all --state COMPLETED --user ann": {**ENDED, "states": ("COMPLETED",), "user": "ann"},
    "ls --all --state FAILED --user bob": {**ENDED, "states": ("FAILED",), "user": "bob"},
    "history": HISTORY,
    "history --user bob": {**HISTORY, "user": "bob"},
}
"""Nearly all jobs are of ann and are called `train`; the 30 of bob have failed long ago."""


def _fill(path: Path, finished: int, waiting: int) -> None:
    """Makes a store with finished jobs before and behind the waiting ones."""
    database = Database(path)
    store = Store(database, Queries(database.connection))
    ann = JobSpec("train", ("python", "train.py"), "/", user="ann")
    wait = range(finished // 2, finished // 2 + waiting)
    for first in range(0, finished + waiting, TASKS):
        numbers = range(first + 1, min(first + TASKS, finished + waiting) + 1)
        specs = [replace(ann, user="bob") if n <= 30 else ann for n in numbers]
        database.do(partial(add_jobs, specs=specs, now=float(first)))
        over = [
            JobRecord(n, State.FAILED if n <= 30 else State.COMPLETED, float(first), end_s=float(n))
            for n in numbers
            if n - 1 not in wait
        ]
        store.write(JournalEntry((), tuple(over)))
    database.close()


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("answers", "memory", "listing"), default=None)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--policy", default="fifo")
    given = parser.parse_args()
    if given.only in (None, "answers"):
        answers(given.policy, given.jobs, given.nodes)
    if given.only in (None, "memory"):
        memory(given.finished, given.nodes)
    if given.only in (None, "listing"):
        listing((1000, 50_000))


if __name__ == "__main__":
    main()
