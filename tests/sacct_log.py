"""A realistic `sacct -P -D` log with its truth, for tests of what an operator first tries.

2,000 jobs of 38 users in 6 accounts, on 36 A100 and 16 V100 in nodes of 4, over the end of
summer time in Berlin. The jobs are really scheduled (first come, whoever fits), so starts and
ends never put more on a node than it has. What is printed is what Slurm prints: steps, arrays,
heterogeneous jobs, requeued rows, local times without an offset, four ways of counting GPUs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from random import Random
from zoneinfo import ZoneInfo

FIELDS = (
    "JobID|User|Account|Partition|QOS|JobName|State|Submit|Eligible|Start|End|Elapsed|Suspended|"
    "Timelimit|NNodes|NodeList|Reservation|AllocTRES|ReqTRES"
)
ZONE = ZoneInfo("Europe/Berlin")
FIRST_S = datetime(2025, 10, 13, tzinfo=UTC).timestamp()
DAY_S = 86400.0
DAYS = 20
GPUS_PER_NODE = 4
NODES = {"a100": 9, "v100": 4}
CUT_SHORT = ("NODE_FAIL", "PREEMPTED", "REQUEUED")
"""States of a row that is not the last one of its job."""
LAST_STATES = {
    "COMPLETED": 0.64,
    "FAILED": 0.12,
    "CANCELLED": 0.12,
    "TIMEOUT": 0.06,
    "OUT_OF_MEMORY": 0.03,
    "NODE_FAIL": 0.015,
    "DEADLINE": 0.01,
    "BOOT_FAIL": 0.005,
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of a job that had GPUs: times in Unix seconds, the nodes, and how it ended."""

    submit_s: float
    start_s: float
    end_s: float
    state: str
    nodes: tuple[int, ...]
    suspended_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """Returns what Slurm counts as run time: suspensions do not."""
        return self.end_s - self.start_s - self.suspended_s


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """One job as it was. `attempts` is empty for a job that was cancelled while it waited."""

    job_id: str
    user: str
    account: str
    gpu_type: str
    gpus: int
    submit_s: float
    run_s: float
    limit: str
    state: str
    qos: str = "normal"
    reservation: str = ""
    interruptions: tuple[tuple[str, float], ...] = ()
    """State and share of the run after which an attempt was cut short."""
    suspended_s: float = 0.0
    cancelled_after_s: float | None = None
    """Seconds after submission at which its user gives up waiting."""
    attempts: tuple[Attempt, ...] = ()
    end_s: float = 0.0

    @property
    def restarts(self) -> int:
        """Returns how often it was requeued."""
        return max(0, len(self.attempts) - 1)


@dataclass
class _Cluster:
    """Free GPUs by type and node, and what runs until when."""

    free: dict[str, list[int]] = field(
        default_factory=lambda: {t: [GPUS_PER_NODE] * n for t, n in NODES.items()}
    )
    ends: list[tuple[float, int, str, tuple[int, ...], int]] = field(default_factory=list)
    count: int = 0

    def take(self, gpu_type: str, gpus: int, until_s: float) -> tuple[int, ...] | None:
        nodes = self._nodes(gpu_type, gpus)
        if nodes is None:
            return None
        each = min(gpus, GPUS_PER_NODE)
        for node in nodes:
            self.free[gpu_type][node] -= each
        self.count += 1
        heapq.heappush(self.ends, (until_s, self.count, gpu_type, nodes, each))
        return nodes

    def _nodes(self, gpu_type: str, gpus: int) -> tuple[int, ...] | None:
        free = self.free[gpu_type]
        if gpus > GPUS_PER_NODE:
            whole = [n for n, left in enumerate(free) if left == GPUS_PER_NODE]
            wanted = gpus // GPUS_PER_NODE
            return tuple(whole[:wanted]) if len(whole) >= wanted else None
        fits = [n for n, left in enumerate(free) if left >= gpus]
        return (min(fits, key=lambda n: (free[n], n)),) if fits else None

    def release_until(self, now_s: float) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            _, _, gpu_type, nodes, each = heapq.heappop(self.ends)
            for node in nodes:
                self.free[gpu_type][node] += each


def logged_jobs(jobs: int = 2000, seed: int = 1) -> tuple[LoggedJob, ...]:
    """Returns the jobs with their attempts, in order of submission."""
    return _scheduled(_requested(jobs, Random(seed)))


def _requested(jobs: int, random: Random) -> list[LoggedJob]:
    """Draws jobs; arrays and heterogeneous jobs share a number and a submission."""
    users = [f"user{n:02d}" for n in range(38)]
    accounts = {user: f"group{n % 6}" for n, user in enumerate(users)}
    groups: list[tuple[LoggedJob, tuple[str, ...]]] = []
    while (left := jobs - sum(len(ids) for _, ids in groups)) > 0:
        job, kind = _request(random, users, accounts), random.random()
        ids: tuple[str, ...] = ("",)
        if kind < 0.04:
            ids = tuple(f"_{task}" for task in range(min(random.randint(3, 12), left)))
        elif kind < 0.06 and job.gpus <= GPUS_PER_NODE and left > 1:
            ids = ("+0", "+1")
        groups.append((job, ids))
    groups.sort(key=lambda group: group[0].submit_s)
    numbers = accumulate(random.choice((1, 1, 1, 2, 5)) + len(ids) for _, ids in groups)
    return [
        replace(job, job_id=f"{40_000 + number}{part}")
        for (job, ids), number in zip(groups, numbers, strict=True)
        for part in ids
    ]


def _request(random: Random, users: Sequence[str], accounts: dict[str, str]) -> LoggedJob:
    user = users[min(int(random.expovariate(0.1)), len(users) - 1)]
    day, hour = random.randrange(DAYS), random.gauss(14, 4) % 24
    state = random.choices(list(LAST_STATES), list(LAST_STATES.values()))[0]
    run_s = float(round(min(random.lognormvariate(8.2, 1.6), 3 * DAY_S)) + 1)
    limit_s = max(600.0, run_s * random.choice((1.2, 2.0, 4.0)))
    if state == "TIMEOUT":
        limit_s = run_s
    cuts = tuple(
        (random.choice(CUT_SHORT), random.uniform(0.1, 0.9))
        for _ in range(random.choices((0, 1, 2), (0.95, 0.04, 0.01))[0])
    )
    gives_up = state == "CANCELLED" and random.random() < 0.5
    return LoggedJob(
        job_id="",
        user=user,
        account=accounts[user],
        gpu_type=random.choices(("a100", "v100"), (0.7, 0.3))[0],
        gpus=random.choices((1, 2, 4, 8, 16), (0.55, 0.17, 0.18, 0.08, 0.02))[0],
        submit_s=float(round(FIRST_S + day * DAY_S + hour * 3600)),
        run_s=run_s,
        limit=random.choices((_span(limit_s), "UNLIMITED", "Partition_Limit"), (0.9, 0.05, 0.05))[0]
        if state != "TIMEOUT"
        else _span(limit_s),
        state=state,
        qos=random.choices(("normal", "high", "spot"), (0.8, 0.1, 0.1))[0],
        reservation="course" if random.random() < 0.01 else "",
        interruptions=() if gives_up else cuts,
        suspended_s=float(random.randint(60, 3600)) if random.random() < 0.02 else 0.0,
        cancelled_after_s=float(random.randint(5, 7200)) if gives_up else None,
    )


def _scheduled(requests: Sequence[LoggedJob]) -> tuple[LoggedJob, ...]:
    """Plays first come, whoever fits, and returns the jobs with what became of them."""
    cluster = _Cluster()
    arrivals = [(job.submit_s, n) for n, job in enumerate(requests)]
    heapq.heapify(arrivals)
    waiting: list[tuple[float, int]] = []
    done: dict[int, LoggedJob] = {}
    attempts: dict[int, list[Attempt]] = {n: [] for n in range(len(requests))}
    while arrivals or waiting:
        times = [event[0] for event in (*arrivals[:1], *cluster.ends[:1])]
        now_s = min(times)
        cluster.release_until(now_s)
        while arrivals and arrivals[0][0] <= now_s:
            waiting.append(heapq.heappop(arrivals))
        still: list[tuple[float, int]] = []
        for submit_s, n in sorted(waiting):
            job = requests[n]
            if job.cancelled_after_s is not None and now_s >= submit_s + job.cancelled_after_s:
                done[n] = replace(job, end_s=submit_s + job.cancelled_after_s)
                continue
            attempt = _attempt(job, submit_s, now_s, len(attempts[n]), cluster)
            if attempt is None:
                still.append((submit_s, n))
                continue
            attempts[n].append(attempt)
            if attempt.state in CUT_SHORT and len(attempts[n]) <= len(job.interruptions):
                heapq.heappush(arrivals, (attempt.end_s, n))
            else:
                done[n] = replace(job, attempts=tuple(attempts[n]), end_s=attempt.end_s)
        waiting = still
    return tuple(done[n] for n in range(len(requests)))


def _attempt(
    job: LoggedJob, submit_s: float, now_s: float, earlier: int, cluster: _Cluster
) -> Attempt | None:
    """Starts the next attempt of a job if its GPUs are free; each begins from the beginning."""
    if earlier < len(job.interruptions):
        state, share = job.interruptions[earlier]
        run_s, suspended_s = float(round(job.run_s * share) + 1), 0.0
    else:
        state, run_s, suspended_s = job.state, job.run_s, job.suspended_s
        if state == "BOOT_FAIL":
            run_s = suspended_s = 0.0
    end_s = now_s + run_s + suspended_s
    nodes = cluster.take(job.gpu_type, job.gpus, end_s)
    if nodes is None:
        return None
    return Attempt(submit_s, now_s, end_s, state, nodes, suspended_s)


def log_lines(jobs: Sequence[LoggedJob], seed: int = 1) -> list[str]:
    """Returns the lines of `sacct -P -D`, header first, with thirty damaged ones among them."""
    random = Random(seed)
    lines = [line for job in jobs for line in _job_lines(job, random)]
    for damaged in _damaged(lines, random):
        lines.insert(random.randrange(len(lines)), damaged)
    return [FIELDS, *lines]


def _job_lines(job: LoggedJob, random: Random) -> Iterator[str]:
    if not job.attempts:
        yield _row(job, job.submit_s, None, job.end_s, "CANCELLED", 0.0, (), random)
    for attempt in job.attempts:
        state = attempt.state
        yield _row(
            job,
            attempt.submit_s,
            attempt.start_s,
            attempt.end_s,
            state,
            attempt.suspended_s,
            attempt.nodes,
            random,
        )
        yield from _steps(job, attempt, random)


def _row(
    job: LoggedJob,
    submit_s: float,
    start_s: float | None,
    end_s: float,
    state: str,
    suspended_s: float,
    nodes: tuple[int, ...],
    random: Random,
) -> str:
    elapsed_s = 0.0 if start_s is None else end_s - start_s - suspended_s
    requested = _tres(job, random)
    values = (
        job.job_id,
        job.user,
        job.account,
        job.gpu_type,
        job.qos,
        "train",
        f"CANCELLED by {1000 + int(job.user[4:])}" if state == "CANCELLED" else state,
        _local(submit_s),
        _local(submit_s),
        "None" if start_s is None else _local(start_s),
        _local(end_s),
        _span(elapsed_s),
        _span(suspended_s),
        job.limit,
        str(max(1, len(nodes))),
        _node_list(job.gpu_type, nodes),
        job.reservation,
        "" if start_s is None else requested,
        requested,
    )
    return "|".join(values)


def _steps(job: LoggedJob, attempt: Attempt, random: Random) -> Iterator[str]:
    """Steps have no user, partition or limit, and an AllocTRES of their own."""
    for name in ("batch", "extern", "0")[: random.choices((0, 1, 2, 3), (0.05, 0.1, 0.6, 0.25))[0]]:
        values = [f"{job.job_id}.{name}", "", job.account, "", "", name]
        state = "CANCELLED" if attempt.state == "CANCELLED" else attempt.state
        values += [state, *[_local(attempt.start_s)] * 3, _local(attempt.end_s)]
        values += [
            _span(attempt.elapsed_s),
            _span(0.0),
            "",
            "1",
            "",
            "",
            _tres(job, random),
            "",
        ]
        yield "|".join(values)


def _damaged(lines: Sequence[str], random: Random) -> list[str]:
    """Returns thirty lines as full disks, joined files and pagers leave them."""
    broken = []
    for n in range(30):
        line = random.choice(lines)
        broken.append(
            (
                line[: random.randint(8, len(line) // 2)],
                f"{line}|{random.randint(0, 9)}",
                FIELDS,
                "sacct: error: slurm_persist_conn_open: failed to send persistent connection",
                line.replace("|2025-", "|20-25", 1),
            )[n % 5]
        )
    return broken


def _tres(job: LoggedJob, random: Random) -> str:
    """Returns the request in one of the four ways that sites print it."""
    nodes = max(1, job.gpus // GPUS_PER_NODE)
    gpus = (
        f"gres/gpu:{job.gpu_type}={job.gpus}",
        f"gres/gpu={job.gpus},gres/gpu:{job.gpu_type}={job.gpus}",
        f"gres/gpu:{job.gpu_type}={job.gpus},gres/gpu={job.gpus}",
        f"gres/gpu={job.gpus}",
    )[random.choices(range(4), (0.3, 0.4, 0.2, 0.1))[0]]
    return f"billing={8 * job.gpus},cpu={8 * job.gpus},{gpus},mem={60 * job.gpus}G,node={nodes}"


def _node_list(gpu_type: str, nodes: tuple[int, ...]) -> str:
    if not nodes:
        return "None assigned"
    names = ",".join(f"{n:02d}" for n in nodes)
    return f"{gpu_type}-{names}" if len(nodes) == 1 else f"{gpu_type}-[{names}]"


def _local(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, ZONE).strftime("%Y-%m-%dT%H:%M:%S")


def _span(seconds: float) -> str:
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock
