"""What a real slurmctld did with the jobs of `slurm_site`, as a trace with its record.

`slurm_records/` has the output of `sacct -P -D -X` with exact times from slurmctld's log, written
by `python -m tests.slurm_record NAME` on Slurm 22.05.8.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable, Labels
from dovetail.core.placement import Spans
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec
from dovetail.core.trace import Recorded, Trace
from dovetail.mechanisms.slurm.fair_share import FairShares
from dovetail.mechanisms.slurm.state import SlurmState
from dovetail.shadow.slurm_values import hosts
from tests.slurm_cluster import Site, SlurmCluster
from tests.slurm_site import (
    ACCOUNTS,
    CPUS_PER_NODE,
    INTERVAL_S,
    LIMITED,
    LIMITS,
    SHARES,
    SITE,
    accounting,
    asked_jobs,
    play,
)

RECORDS = Path(__file__).parent / "slurm_records"
POLICY = (
    "slurm:priority-weight-age=1000,priority-weight-fairshare=2000,priority-weight-qos=1000,"
    "priority-weight-job-size=500,priority-max-age=10,priority-decay-half-life=10,"
    f"priority-calc-period=1,bf-interval={INTERVAL_S},sched-interval={INTERVAL_S},"
    "bf-resolution=1,bf-window=60,bf-max-job-test=500,batch-sched-delay=0"
)
"""The settings of `slurm_site.SITE` as parameters of the policy."""


WINDOWS_S = 30 * 2**10
"""Slurm rounds the windows of its forecasts on the clock of Unix seconds; they double from 30 s."""


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """A site, and the jobs that were asked for: number, seed, seconds."""

    site: Site
    jobs: int
    seed: int
    span_s: float

    @property
    def limited(self) -> bool:
        """Returns whether users and accounts have limits."""
        return bool(self.site.limits)


RUNS = {"plain": SlurmRun(SITE, 300, 7, 380.0), "limited": SlurmRun(LIMITED, 220, 11, 290.0)}


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """The jobs of a run as a trace whose record is exact, the nodes that each had, and its priority
    when it was submitted.

    Time 0 is a multiple of `WINDOWS_S` in Unix seconds. Slurm computed priorities and ran backfill
    at `calculated_s` and `backfilled_s`, before the first job, and at every interval since.
    """

    trace: Trace
    spans: list[Spans]
    first_priority: list[int]
    calculated_s: float
    backfilled_s: float

    @property
    def memory(self) -> SlurmState:
        """Returns the memory of a scheduler whose cycles have the phases of the record."""
        shares = FairShares(calculated_s=self.calculated_s)
        return SlurmState(shares=shares, backfilled_s=self.backfilled_s)


def kept_record(name: str) -> SlurmRecord:
    """Returns one of the kept records."""
    return record_of(gzip.decompress((RECORDS / f"{name}.txt.gz").read_bytes()).decode())


def record_of(text: str) -> SlurmRecord:
    """Returns the record of an output of sacct with exact times. Every job must have run."""
    phases, header, *lines = text.splitlines()
    names = header.split("|")
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines]
    # In order of number, which is that of submission.
    rows.sort(key=lambda row: int(row["JobID"]))
    first_s = float(rows[0]["Submitted"])
    zero_s = first_s - first_s % WINDOWS_S
    calculated_s, later_s = (float(at) for at in phases.split("|")[1:])
    passes = (later_s - first_s) // INTERVAL_S + 1
    return SlurmRecord(
        _trace(rows, zero_s),
        [_spans(row) for row in rows],
        [int(row["FirstPriority"]) for row in rows],
        calculated_s - zero_s,
        later_s - passes * INTERVAL_S - zero_s,
    )


def _tres(row: dict[str, str], name: str) -> int:
    return int(dict(item.split("=") for item in row["AllocTRES"].split(","))[name])


def _spans(row: dict[str, str]) -> Spans:
    number = {node.name: i for i, node in enumerate(SITE.nodes)}
    names = hosts(row["NodeList"])
    return tuple((number[name], _tres(row, "gres/gpu") // len(names)) for name in names)


def _trace(rows: Sequence[dict[str, str]], zero_s: float) -> Trace:
    def labels(column: str) -> Labels:
        return Labels.of([row[column] for row in rows])

    submit, start, end = (
        np.array([float(row[column]) - zero_s for row in rows])
        for column in ("Submitted", "Started", "Ended")
    )
    jobs = JobTable.build(
        # Ids of one width, so that jobs of one time stay in Slurm's order.
        [f"{int(row['JobID']):04}" for row in rows],
        submit,
        np.array([_tres(row, "gres/gpu") for row in rows], np.int64),
        user=labels("User"),
        account=labels("Account"),
        qos=labels("QOS"),
        queue=labels("Partition"),
        cpus=np.array([float(_tres(row, "cpu")) for row in rows]),
        time_limit_s=np.array([60.0 * float(row["TimelimitRaw"]) for row in rows]),
    )
    n = len(rows)
    record = Recorded(start, end, start - submit, np.zeros(n, np.int64), labels("NodeList"))
    return Trace(jobs, end - start, np.full(n, np.nan), np.zeros(n, np.int8), "slurm", {}, record)


def site_cluster(*, limited: bool = False) -> Cluster:
    """Returns the site in Dovetail's words."""
    groups = tuple(NodeGroup(n.name, 1, n.gpus, n.gpu_type, cpus=CPUS_PER_NODE) for n in SITE.nodes)
    partitions = {t: tuple(n.name for n in SITE.nodes if n.gpu_type == t) for t in ("a100", "v100")}
    # In Slurm the root of the tree has a user of its own, who competes with the accounts.
    accounts = [AccountSpec("", users=(("root", 1),))]
    limits = LIMITS if limited else dict.fromkeys(LIMITS, 0)
    for name, users in ACCOUNTS.items():
        shares = tuple((user, 1 + i) for i, user in enumerate(users))
        most = limits["arts"] if name == "arts" else 0
        accounts.append(AccountSpec(name, "", SHARES[name], shares, max_gpus=most))
    return Cluster(
        groups,
        queues=tuple(QueueSpec(name, groups=nodes) for name, nodes in partitions.items()),
        accounts=tuple(accounts),
        qos=(
            QosSpec("normal", max_gpus_per_user=limits["normal"]),
            QosSpec("high", 50.0, max_jobs_per_user=limits["high"]),
        ),
    )


def main(names: Sequence[str]) -> None:
    """Plays and records runs anew; a quarter of an hour each."""
    for name in names:
        run = RUNS[name]
        with SlurmCluster(run.site) as cluster:
            play(cluster, list(asked_jobs(run.jobs, run.seed, run.span_s)))
            text = accounting(cluster)
        (RECORDS / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
