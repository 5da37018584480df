"""A trace played by a live cluster of real processes: controller, agents, workers, sockets, disk.

Jobs are submitted when the trace says, by the cluster's own time, which may pass faster than ours.
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

from dovetail.core.errors import DovetailError
from dovetail.live.client.client import Client
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Reader
from dovetail.replaying.fidelity import RunOutcome, served
from dovetail.wire.spec import JobSpec

COMMAND_S = 900.0
"""How long a cluster may take to come up or to go down, on a machine under load."""


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """A cluster that is up in a folder of its own."""

    home: Path
    client: Client

    def read(self) -> RunOutcome:
        """Returns how its jobs went."""
        with Reader(Folder(self.home).store) as reader:
            return served(reader)


@contextmanager
def live_cluster(engine: str, policy: str, options: Sequence[str] = ()) -> Iterator[LiveCluster]:
    """Gives a cluster of real processes for the while. Raises DovetailError.

    `options` are words of `dovetail up`. The folder goes with it.
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
    """Submits jobs, each at its time, and returns their numbers when all are over.

    Times are seconds of the cluster after the first one; patience is in seconds of ours.
    """
    first_s, began = jobs[0][0], monotonic()
    numbers: list[int] = []
    for submit_s, spec in jobs:
        sleep(max(0.0, began + (submit_s - first_s) / speed - monotonic()))
        numbers.extend(cluster.client.submit(spec))
    cluster.client.wait(*numbers, timeout_s=patience_s)
    return tuple(numbers)


def _take_down(cluster: LiveCluster) -> None:
    """Ends whatever runs, then the controller and the agents.

    With very many jobs that is left to them: they end when their folder is gone.
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
