"""The cluster and the jobs of the comparison with a real slurmctld, and how they are recorded.

Six nodes of four pretended GPUs, seven users in three accounts with unequal shares, two QOS, and
a few hundred jobs of 5 to 120 seconds that sleep. All of it comes from a seed but what Slurm does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from random import Random

from tests.slurm_cluster import Node, Site, SlurmCluster

CPUS_PER_GPU, CPUS_PER_NODE = 4, 16.0
INTERVAL_S = 5
"""Both `sched_interval` and `bf_interval` of the recorded site."""
FIELDS = (
    "JobID,User,Account,Partition,QOS,JobName,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,Priority,NNodes,NodeList,AllocTRES,ReqTRES,Flags"
)
ACCOUNTS = {
    "physics": ("games", "man", "lp"),
    "biology": ("mail", "news"),
    "arts": ("uucp", "proxy"),
}
SHARES = {"physics": 5, "biology": 3, "arts": 1}
LIMITS = {"normal": 8, "high": 2, "arts": 8}
"""GPUs of a user in QOS normal, jobs of a user in QOS high, GPUs of account arts."""

SITE = Site(
    nodes=tuple(Node(f"n{i}", 4, "a100" if i <= 4 else "v100") for i in range(1, 7)),
    partitions=(
        "a100 Nodes=n[1-4] Default=YES State=UP TRESBillingWeights=GRES/gpu=1",
        "v100 Nodes=n[5-6] State=UP TRESBillingWeights=GRES/gpu=1",
    ),
    settings=(
        # Its log says when each pass began, and when nodes came back.
        "SlurmctldDebug=debug",
        "DebugFlags=TraceJobs",
        f"SchedulerParameters=bf_interval={INTERVAL_S},sched_interval={INTERVAL_S},bf_continue,"
        "bf_resolution=1,bf_window=60,bf_max_job_test=500,batch_sched_delay=0",
        "PriorityWeightAge=1000",
        "PriorityWeightFairshare=2000",
        "PriorityWeightQOS=1000",
        "PriorityWeightJobSize=500",
        "PriorityMaxAge=0-00:10:00",
        "PriorityDecayHalfLife=0-00:10:00",
        "PriorityCalcPeriod=00:01:00",
    ),
    tenants=(
        "add qos high",
        "modify qos high set priority=50",
        *(f"add account {name} fairshare={shares}" for name, shares in SHARES.items()),
        *(
            f"add user {user} account={name} fairshare={1 + i} qos=normal,high"
            for name, users in ACCOUNTS.items()
            for i, user in enumerate(users)
        ),
    ),
)

LIMITED = replace(
    SITE,
    limits=(
        f"modify qos normal set maxtresperuser=gres/gpu={LIMITS['normal']}",
        f"modify qos high set maxjobsperuser={LIMITS['high']}",
        f"modify account arts set grptres=gres/gpu={LIMITS['arts']}",
    ),
)
"""The same site with limits of users in each QOS, and of one account."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One job as its user submits it, `after_s` the first."""

    after_s: float
    user: str
    account: str
    partition: str
    qos: str
    gpus: int
    run_s: int
    limit_min: int

    @property
    def options(self) -> list[str]:
        """Returns the options of sbatch."""
        nodes = ceil(self.gpus / 4)
        return [
            f"--account={self.account}",
            f"--partition={self.partition}",
            f"--qos={self.qos}",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            f"--cpus-per-task={CPUS_PER_GPU * self.gpus // nodes}",
            f"--gres=gpu:{self.gpus // nodes}",
            f"--time={self.limit_min}",
            f"--job-name={self.user}-{self.gpus}",
        ]


def asked_jobs(jobs: int, seed: int, span_s: float) -> Iterator[Asked]:
    """Yields jobs that arrive at random over `span_s`, most of them small and short."""
    draw = Random(seed)
    arrivals = sorted(draw.uniform(0.0, span_s) for _ in range(jobs))
    for after_s in arrivals:
        account = draw.choices(list(ACCOUNTS), (4, 4, 2))[0]
        gpus = draw.choices((1, 2, 3, 4, 8), (50, 20, 5, 17, 8))[0]
        run_s = round(min(120.0, max(5.0, draw.lognormvariate(2.8, 0.8))))
        slack = draw.choice((1.2, 1.5, 2.0, 4.0))
        yield Asked(
            after_s=after_s,
            user=draw.choice(ACCOUNTS[account]),
            account=account,
            partition=draw.choices(("a100", "v100"), (2, 1))[0],
            qos=draw.choices(("normal", "high"), (6, 1))[0],
            gpus=gpus,
            run_s=run_s,
            limit_min=ceil(run_s * slack / 60),
        )


def play(cluster: SlurmCluster, asked: list[Asked]) -> None:
    """Submits the jobs at their times and returns when all have ended."""
    begin = time.monotonic()
    for job in asked:
        time.sleep(max(0.0, job.after_s - (time.monotonic() - begin)))
        cluster.submit(job.options, f"sleep {job.run_s}", job.user)
    cluster.wait_until(
        lambda: not cluster.run("squeue", "-h", "-t", "PD,R,CG,S"), "all jobs end", 1200.0
    )
    time.sleep(3.0)


LOGGED = {
    "Submitted": re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)"),
    "Started": re.compile(r"sched(?::|/backfill: _start_job:) (?:Allocate|Started) JobId=(\d+)"),
    "Ended": re.compile(r"_job_complete: JobId=(\d+) done"),
    "Completed": re.compile(r"TRACE_JOBS: job_epilog_complete: enter JobId=(\d+)"),
}
"""What slurmctld logs of a job, with milliseconds."""


CALCULATED = "priority/multifactor: _read_last_decay_ran"
"""What slurmctld logs when it computes priorities for the first time."""


FIRST_PRIORITY = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) InitPrio=(\d+)")


PASSES = {
    "full": "sched: Running job scheduler for full queue",
    "looks": "sched: Running job scheduler",
    "backfills": "sched/backfill: _attempt_backfill: beginning",
}
"""What slurmctld logs, at level debug, when a pass begins."""


def passes(log: str) -> dict[str, list[float]]:
    """Returns when each pass of slurmctld's scheduler began, in Unix seconds."""
    found: dict[str, list[float]] = {name: [] for name in PASSES}
    for line in log.splitlines():
        text = line.partition("] ")[2].removeprefix("debug:").strip()
        for name, words in PASSES.items():
            if text.startswith(words):
                found[name].append(_logged_at(line))
    return found


def calculated_at(log: str) -> float:
    """Returns the first computation of priorities, in Unix seconds."""
    lines = log.splitlines()
    return next(_logged_at(at) for at in lines if at.partition("] ")[2].startswith(CALCULATED))


def _logged_at(line: str) -> float:
    stamp = line.partition("] ")[0].strip("[")
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()


def exact_times(log: str) -> dict[str, dict[str, float]]:
    """Returns when each job was submitted, started and ended, in Unix seconds, of slurmctld.log."""
    found: dict[str, dict[str, float]] = {name: {} for name in LOGGED}
    for line in log.splitlines():
        for name, pattern in LOGGED.items():
            if match := pattern.match(line.partition("] ")[2]):
                found[name][match[1]] = _logged_at(line)
    return found


def accounting(cluster: SlurmCluster) -> str:
    """Returns what sacct says of all jobs, with exact times from slurmctld's log beside it.

    Slurm's accounting has whole seconds, in which several passes of its scheduler may fall.
    """
    sacct = ("sacct", "-a", "-D", "-P", "-X", "-S", "now-1hour", "-o", FIELDS)
    return with_exact(cluster.run(*sacct), (cluster.path / "slurmctld.log").read_text())


def with_exact(sacct: str, log: str) -> str:
    """Returns an output of sacct with the first priority and the exact times of each job.

    The first lines have the times of Slurm's cycles.
    """
    times, first = exact_times(log), dict(FIRST_PRIORITY.findall(log))
    header, *lines = sacct.splitlines()
    rows = [f"calculated|{calculated_at(log):.3f}"]
    rows += ["|".join([name, *(f"{at:.3f}" for at in ats)]) for name, ats in passes(log).items()]
    rows.append("|".join([header, "FirstPriority", *times]))
    for line in lines:
        job = line.partition("|")[0]
        exact = (f"{times[name].get(job, 0):.3f}" for name in times)
        rows.append("|".join([line, first.get(job, ""), *exact]))
    return "\n".join([*rows, ""])
