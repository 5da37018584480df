"""The durable store of the control plane: submits a second, recovery, size, queries.

    python -m benchmarks.live_store [--folder DIR] [--submits 4000]

The folder should be on the disk that a controller would use; the file is removed again.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.control_plane import percentile
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended, Fact, Started, Submitted
from dovetail.core.placement import Placement
from dovetail.live.edges.protocols import Incoming, JournalEntry
from dovetail.live.edges.wall_clock import WallClock
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import Database
from dovetail.live.store.group_commit import GroupCommit
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries, StoreReader
from dovetail.live.store.store import Store
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission

SPEC = JobSpec(
    "train", ("python", "train.py", "--epochs", "3"), "/data", gpus=2, max_gpus=4, trains=True,
    user="ann", model="resnet50", environment=(("EPOCHS", "3"), ("DATA", "digits")),
)  # fmt: skip
CLUSTER = Cluster.uniform(250, 4)
WHERE = Placement(((7, 2),))


def submits(path: Path, threads: int, count: int) -> str:
    """Submits from some threads at once, each waiting for its answer."""
    group = GroupCommit(Database(path))
    inbox: list[Incoming] = []
    intake = Intake(group, clock=WallClock(0.0, 1.0), cluster=CLUSTER, put=inbox.append)
    took_s: list[float] = []

    def user(name: int) -> None:
        for i in range(count // threads):
            began = time.perf_counter()
            intake.submit([Submission(SPEC)], key=f"{name}/{i}")
            took_s.append(time.perf_counter() - began)

    workers = [threading.Thread(target=user, args=(name,)) for name in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall_s = time.perf_counter() - began
    group.close()
    assert all(isinstance(a, StoredJob) for a in inbox) and len(inbox) == len(took_s)
    return (
        f"{threads:3d} threads: {len(took_s) / wall_s:6.0f} submits/s, "
        f"p50 {percentile(took_s, 0.5):.1f} ms, p99 {percentile(took_s, 0.99):.1f} ms"
    )


def filled(path: Path, count: int, *, over: bool) -> None:
    """Fills a store with jobs that ran, or wait, in transactions of a thousand."""
    database = Database(path)
    store = Store(database, Queries(database.connection))
    intake = Intake(database, clock=WallClock(0.0, 1.0), cluster=CLUSTER, put=lambda _: None)
    for first in range(1, count + 1, 1000):
        many = Submission(SPEC, tuple(range(1000)))
        intake.submit([many], key=str(first))
        numbers = range(first, first + 1000)
        facts: list[Fact] = [Submitted(1e6, job, 3600.0) for job in numbers]
        if over:
            facts += [Started(1e6, job, "start", WHERE, 1.0, 1e6) for job in numbers]
            facts += [Ended(1e6, job, "completed") for job in numbers]
        records = [lived(job) if over else JobRecord(job) for job in numbers]
        store.write(JournalEntry(tuple(facts), tuple(records)))
    database.close()


def lived(job: int) -> JobRecord:
    """Returns the record of a job that is over."""
    return JobRecord(
        job, State.COMPLETED, 1.0, 3, None, (), (), 4, 3600.0, 0.0, 7200.0, 1e6, 1e6, 3600.0, 1e6,
        exit_code=0, samples=10**6,
    )  # fmt: skip


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints how long a block took, the best that a caller sees: no warm-up, once."""
    began = time.perf_counter()
    yield
    print(f"{what}: {(time.perf_counter() - began) * 1e3:.0f} ms")


def peak_mib() -> float:
    """Returns the most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def recovery(path: Path) -> None:
    """Times what a new controller and its readers wait for with 10,000 jobs that wait."""
    filled(path, 10_000, over=False)
    with timed("recover 10,000 jobs that wait (open, epoch, requests, records)"):
        database = Database(path)
        recovered = Store(database, Queries(database.connection)).recover()
    assert len(recovered.jobs) == 10_000
    with StoreReader(path) as reader:
        for limit in (10_000, 200):
            with timed(f"ls of the newest {limit:,} of 10,000 jobs"):
                assert len(reader.rows(limit=limit)) == limit
        with timed("count 10,000 jobs by state"):
            assert reader.counts() == {State.PENDING: 10_000}
    database.close()


def finished(path: Path) -> None:
    """Says how large the store is after 100,000 jobs, and how fast it answers then."""
    before = peak_mib()
    filled(path, 100_000, over=True)
    size = sum(file.stat().st_size for file in path.parent.iterdir())
    print(f"100,000 finished jobs, 300,000 facts: {size / 2**20:.0f} MiB on disk,", end=" ")
    print(f"peak memory of the process {before:.0f} -> {peak_mib():.0f} MiB")
    with timed("open and recover it"):
        database = Database(path)
        assert not Store(database, Queries(database.connection)).recover().jobs
    database.close()
    with StoreReader(path) as reader:
        with timed("ls of the newest 200"):
            reader.rows(limit=200)
        with timed("one job and its facts"):
            assert reader.job(50_000) is not None and len(reader.facts(50_000)) == 3


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--submits", type=int, default=4000)
    given = parser.parse_args()
    for step in (1, 8, 32):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            print(submits(Path(folder) / "store.db", step, given.submits), flush=True)
    for part in (recovery, finished):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            part(Path(folder) / "store.db")


if __name__ == "__main__":
    main()
