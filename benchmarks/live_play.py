"""Runs a trace on a live cluster of real processes: controller, agents, workers, sockets, disk.

Jobs are submitted at the times of the trace in cluster time, which may pass faster than real time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.run_outcomes import RunOutcome, served
from dovetail.core.errors import DovetailError
from dovetail.live.client.client import Client
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader
from dovetail.wire.spec import JobSpec

COMMAND_S = 900.0
"""Timeout of a start or stop of the cluster, on a loaded machine."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A running cluster in its own folder."""

    home: Path
    client: Client

    def read(self) -> RunOutcome:
        """Returns the result of the run."""
        with StoreReader(Folder(self.home).store) as reader:
            return served(reader)


@contextmanager
def live_cluster(engine: str, policy: str, options: Sequence[str] = ()) -> Iterator[LiveCluster]:
    """Starts a cluster of real processes, and stops it at the end. Raises DovetailError.

    `options` are those of `dovetail up`. The folder of the cluster is removed.
    """
    home = Path(tempfile.mkdtemp(prefix="dvf-", dir="/tmp"))
    try:
        _command("up", home, "--engine", engine, "--policy", policy, *options)
        cluster = LiveCluster(home, Client(home))
        try:
            yield cluster
        finally:
            _take_down(cluster)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def serve(
    cluster: LiveCluster, jobs: Sequence[tuple[float, JobSpec]], *, speed: float, patience_s: float
) -> tuple[int, ...]:
    """Submits jobs at their times, waits for all, and returns their numbers.

    Times are in seconds of cluster time, `patience_s` is in seconds of real time.
    """
    first_s, began = jobs[0][0], monotonic()
    numbers: list[int] = []
    for submit_s, spec in jobs:
        sleep(max(0.0, began + (submit_s - first_s) / speed - monotonic()))
        numbers.extend(cluster.client.submit(spec))
    cluster.client.wait(*numbers, timeout_s=patience_s)
    return tuple(numbers)


def _take_down(cluster: LiveCluster) -> None:
    """Cancels all jobs and stops the cluster.

    With too many jobs to list, does nothing: all processes exit once their folder is removed.
    """
    listed = cluster.client.jobs()
    if listed.more:
        return
    if listed.jobs:
        cluster.client.cancel(*(row.job for row in listed.jobs))
    _command("down", cluster.home, "--drain")


def _command(verb: str, home: Path, *words: str) -> None:
    line = [sys.executable, "-m", "dovetail", verb, "--home", str(home), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=COMMAND_S)
    if done.returncode:
        raise DovetailError(f"dovetail {verb}: {done.stderr.strip() or done.stdout.strip()}")
