"""What a real slurmctld did with the jobs of `slurm_site`, as a trace with its record.

`slurm_records/` has the output of `sacct -P -D -X` with exact times from slurmctld's log, written
by `python -m tests.slurm_record NAME` on Slurm 22.05.8.
"""

from __future__ import annotations

import gzip
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from time import sleep, time

import numpy as np

from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.job import JobTable, Labels
from dovetail.core.placement import Spans
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec
from dovetail.core.trace import Recorded, Trace
from dovetail.core.units import NEVER_S
from dovetail.mechanisms.slurm.completing import Completing
from dovetail.mechanisms.slurm.cycles import ROUNDING_S, Cycles
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
    calculated_at,
    play,
)

RECORDS = Path(__file__).parent / "slurm_records"
POLICY = (
    "slurm:priority-weight-age=1000,priority-weight-fairshare=2000,priority-weight-qos=1000,"
    "priority-weight-job-size=500,priority-max-age=10,priority-decay-half-life=10,"
    f"priority-calc-period=1,bf-interval={INTERVAL_S},sched-interval={INTERVAL_S},"
    "bf-resolution=1,bf-window=60,bf-max-job-test=500,batch-sched-delay=0,completing=0.005"
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


RUNS = {
    "plain": SlurmRun(SITE, 300, 7, 380.0),
    "again": SlurmRun(SITE, 300, 7, 380.0),
    "limited": SlurmRun(LIMITED, 220, 11, 290.0),
}
ALIGNED_S = 30.0
"""Jobs come so long after slurmctld first computes priorities: the phases of two runs are alike."""


@dataclass(frozen=True, slots=True)
class LoggedCycles(Cycles):
    """The cycles of a slurmctld whose log says when each pass began."""

    looks_s: tuple[float, ...] = ()
    full_s: tuple[float, ...] = ()
    backfills_s: tuple[float, ...] = ()

    def look_s(self, now: float) -> float:
        """Returns the next pass of the main scheduler that was made."""
        return _next(self.looks_s, now)

    def full_pass_from_s(self, interval_s: float, now: float) -> float:
        """Returns the next pass over all jobs that was made."""
        return _next(self.full_s, now)

    def is_full_pass(self, interval_s: float, now: float) -> bool:
        """True if the pass made now was over all jobs."""
        return _next(self.full_s, now) <= now + ROUNDING_S

    def backfill_s(self, last_s: float, interval_s: float, news_s: float) -> float:
        """Returns the next pass of backfill that was made."""
        return _next(self.backfills_s, max(news_s, last_s + 2 * ROUNDING_S))

    def backfilled_before_s(self, last_s: float, interval_s: float, now: float) -> float:
        """Returns the last pass of backfill that was made."""
        place = bisect_left(self.backfills_s, now - ROUNDING_S)
        return max(last_s, self.backfills_s[place - 1] if place else last_s)


@dataclass(frozen=True, slots=True)
class LoggedCompleting(Completing):
    """Nodes that complete as long as the log of slurmctld says of each job."""

    each_s: tuple[float, ...] = ()

    def takes_s(self, job: int, usual_s: float) -> float:
        """Returns how long the nodes of a job were completing."""
        return self.each_s[job]


def _next(times_s: tuple[float, ...], now: float) -> float:
    place = bisect_left(times_s, now - ROUNDING_S)
    return times_s[place] if place < len(times_s) else NEVER_S


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """The jobs of a run as a trace whose record is exact, the nodes that each had, and its priority
    when it was submitted.

    Time 0 is a multiple of `WINDOWS_S` in Unix seconds. Slurm computed priorities first at
    `calculated_s`; `logged` are all its passes. The nodes of a job came back `completing_s` after
    its end.
    """

    trace: Trace
    spans: list[Spans]
    first_priority: list[int]
    calculated_s: float
    logged: LoggedCycles
    completing_s: tuple[float, ...]

    @property
    def memory(self) -> SlurmState:
        """Returns the memory of a scheduler whose cycles have the phases of the record."""
        first_s = float(self.trace.jobs.submit_s[0])
        return SlurmState(
            shares=FairShares(calculated_s=self.calculated_s),
            cycles=Cycles(self.logged.full_s[bisect_left(self.logged.full_s, first_s) - 1]),
            backfilled_s=self._backfilled_s(first_s),
        )

    @property
    def memory_with_passes(self) -> SlurmState:
        """Returns the memory of a scheduler that makes its passes when the recorded one did."""
        completing = LoggedCompleting(each_s=self.completing_s)
        return replace(self.memory, cycles=self.logged, completing=completing)

    def _backfilled_s(self, now: float) -> float:
        """Returns a pass of backfill, or a time that is whole intervals before one."""
        backfills_s = self.logged.backfills_s
        place = bisect_left(backfills_s, now)
        first_s = backfills_s[max(0, place - 1)]
        return first_s - INTERVAL_S * max(0, ceil((first_s - now) / INTERVAL_S))


def kept_record(name: str) -> SlurmRecord:
    """Returns one of the kept records."""
    return record_of(gzip.decompress((RECORDS / f"{name}.txt.gz").read_bytes()).decode())


def record_of(text: str) -> SlurmRecord:
    """Returns the record of an output of sacct with exact times. Every job must have run."""
    calculated, full, looks, backfills, header, *lines = text.splitlines()
    names = header.split("|")
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines]
    # In order of number, which is that of submission.
    rows.sort(key=lambda row: int(row["JobID"]))
    first_s = float(rows[0]["Submitted"])
    zero_s = first_s - first_s % WINDOWS_S

    times = {
        name: [float(at) for at in line.split("|")[1:]]
        for name, line in zip(("full", "looks", "backfills"), (full, looks, backfills), strict=True)
    }
    _by_slurms_clock(rows, times)
    full_s, looks_s, backfills_s = (
        tuple(round(at - zero_s, 3) for at in times[name]) for name in times
    )
    return SlurmRecord(
        _trace(rows, zero_s),
        [_spans(row) for row in rows],
        [int(row["FirstPriority"]) for row in rows],
        round(float(calculated.split("|")[1]) - zero_s, 3),
        LoggedCycles(0.0, looks_s, full_s, backfills_s),
        tuple(max(0.0, float(row["Completed"]) - float(row["Ended"])) for row in rows),
    )


def _by_slurms_clock(rows: Sequence[dict[str, str]], times: dict[str, list[float]]) -> None:
    """Starts each job when its pass began, as in a replay; puts times into the second of sacct.

    What Slurm decides by (`time(NULL)`) is up to 4 ms behind the clock of its log, so a pass of
    the first milliseconds of a second is one of the second before.
    """
    passes = sorted([*times["looks"], *times["backfills"]])
    shifted: dict[float, float] = {}
    for row in rows:
        began = passes[bisect_left(passes, float(row["Started"]) + 1e-4) - 1]
        shifted[began] = _in_second(began, row["Start"])
        row["Started"] = str(shifted[began])
        row["Ended"] = str(_in_second(float(row["Ended"]), row["End"]))
    for each in times.values():
        each[:] = [shifted.get(at, at) for at in each]


def _in_second(at: float, booked: str) -> float:
    second = datetime.fromisoformat(booked).replace(tzinfo=UTC).timestamp()
    return second + 0.999 if second == int(at) - 1 else at


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
            log = (cluster.path / "slurmctld.log").read_text()
            sleep(max(0.0, calculated_at(log) + ALIGNED_S - time()))
            play(cluster, list(asked_jobs(run.jobs, run.seed, run.span_s)))
            text = accounting(cluster)
        (RECORDS / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
