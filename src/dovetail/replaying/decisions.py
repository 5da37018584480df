"""A recorded run again: the log's events, the policy's decisions anew, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dovetail.control.loop import run as run_loop
from dovetail.control.replay import (
    ControllerSpan,
    Difference,
    RecordedForecast,
    ReplayWorld,
    instants,
    spans,
    take_over,
)
from dovetail.control.state import ClusterState
from dovetail.core.cluster import Cluster, Link, NodeGroup, QueueSpec
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.job import JobTable, Labels
from dovetail.core.messages import HOW, READY, ControllerChanged, Fact, Learned, Submitted
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy, parse_policy, spell
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.noisy import believed
from dovetail.record.log import fact_of, read_log
from dovetail.record.metrics import Window, job_frame, summarize
from dovetail.record.tally import Tally
from dovetail.study.options import Options
from dovetail.study.run import build_physics

ANEW = " begun anew "
"""Parts the name of a job from the number of its life, where lives are told apart."""
NOT_RECORDED = "the log is of a version that did not record when controllers start and are ready"

LEARNED = "speeds were measured while it ran, and a replay goes by those first believed"
SPEEDS_MATTER = frozenset({"resize", "share", "interleave"})
"""Powers of policies that read how fast jobs run."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A log read back: its manifest, the trace it holds, and its facts in order."""

    manifest: dict[str, Any]
    trace: Trace
    options: Options
    facts: tuple[Fact, ...]
    scale: tuple[float, ...]
    """Per job: its speed-up over one GPU, as the run had it."""
    guessed: tuple[str, ...] = ()
    """Jobs of a live cluster whose length is a guess."""
    after: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """By job of a live cluster: what it waited for, as the kind and the job."""
    limited: Mapping[int, str] = field(default_factory=dict)
    """By job of a live cluster: its array, where that limits how many tasks may be at once."""
    again_s: Mapping[int, float] = field(default_factory=dict)
    """By job of a live cluster that began anew after its end: when its owner let it, last."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Returns the policies the run was under, one after the other; one, if it was simulated."""
        return tuple(self.manifest.get("policies") or (str(self.manifest["policy"]),))

    def tally(self) -> Tally:
        """Returns the fold of the log, the same as that of the run."""
        gpus, work = self.trace.jobs.gpus.tolist(), self.trace.duration_s.tolist()
        tally = Tally(self.options.cluster, gpus, work, self.scale)
        for _, batch in groupby(self.facts, key=lambda fact: fact.t):
            tally.record(list(batch))
        return tally

    @property
    def last_asked(self) -> Trace:
        """Returns the trace with each job submitted when its last life began."""
        submit_s = self.trace.jobs.submit_s.copy()
        for row, again_s in self.again_s.items():
            submit_s[row] = again_s
        return replace(self.trace, jobs=replace(self.trace.jobs, submit_s=submit_s))

    def jobs(self) -> pl.DataFrame:
        """Returns what `jobs.csv` of the run says, folded from the log."""
        return job_frame(self.last_asked, self.tally())

    def summary(self) -> dict[str, float | int | str | None]:
        """Returns the metrics of the run, folded from the log."""
        tally = self.tally()
        jobs = job_frame(self.last_asked, tally)
        return summarize(self.trace, tally, jobs, self.options.window)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: every placement that a policy decides otherwise than the log.

    `starts` controllers started in a live log; for `recovering_s` in all nothing was decided.
    """

    policy: str
    decisions: int
    differences: tuple[Difference, ...]
    trace: Trace
    starts: int = 0
    recovering_s: float = 0.0

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """Returns the differences whose cause nobody knows."""
        return tuple(d for d in self.differences if not d.why)


def read_recording(path: Path, *, by_life: bool = False) -> Recording:
    """Returns a log as trace, options and facts. Raises InputError.

    A job that its owner let begin anew after its end is one job, or `by_life` one for each time.
    """
    manifest, records = read_log(path)
    kept: list[dict[str, Any]] = list(_told_apart(records) if by_life else records)
    requests: dict[str, dict[str, Any]] = {}
    for record in kept:
        if record["e"] == "submitted":
            # A job that was withdrawn is submitted again; the first time says what it asks for.
            requests.setdefault(str(record.get("job")), record)
    if not requests:
        raise InputError(str(path), "the log holds no job")
    try:
        live = bool(manifest.get("live"))
        submitted = in_order([*requests.values()], live=live)
        trace = trace_of(path.stem, submitted, live=live)
        scale = tuple(float(r.get("scale", r["gpus"])) for r in submitted)
        options = options_of(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(str(path), f"a record lacks or breaks a field: {error!r}") from None
    index_of = {str(r["job"]): row for row, r in enumerate(submitted)}
    facts = []
    for line, record in enumerate(kept, start=2):
        if "job" in record and str(record["job"]) not in index_of:
            raise InputError(f"{path}, line {line}", f"job '{record['job']}' was never submitted")
        try:
            facts.append(fact_of(record, index_of))
        except InputError as error:
            raise InputError(f"{path}, line {line}", error.what) from None
    guessed = tuple(str(r["job"]) for r in submitted if r.get("guessed"))
    after = {
        row: tuple((kind, index_of[str(job)]) for kind, job in said if str(job) in index_of)
        for row, said in enumerate(r.get("after", ()) for r in submitted)
    }
    again_s = {index_of[job]: t for job, t in _begun_anew(kept).items()}
    limited = {row: str(r["limited"]) for row, r in enumerate(submitted) if r.get("limited")}
    return Recording(
        manifest, trace, options, tuple(facts), scale, guessed, after, limited, again_s
    )


def _begun_anew(records: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Returns the jobs that were submitted once more after their end, and when that was last."""
    over, again_s = set[str](), dict[str, float]()
    for record in records:
        job = str(record.get("job"))
        if record["e"] == "ended":
            over.add(job)
        elif record["e"] == "submitted" and job in over:
            over.discard(job)
            again_s[job] = float(record.get("submit_s", record["t"]))
    return again_s


def _told_apart(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields records in which a job that began anew has another name each time."""
    over, anew = set[str](), dict[str, int]()
    for record in records:
        job = str(record.get("job"))
        if record["e"] == "ended":
            over.add(job)
        elif record["e"] == "submitted" and job in over:
            over.discard(job)
            anew[job] = anew.get(job, 0) + 1
        yield {**record, "job": f"{job}{ANEW}{anew[job]}"} if job in anew else record


def plain_name(job: str) -> str:
    """Returns the name that a job has in its log, whichever of its lives is meant."""
    return job.rpartition(ANEW)[0] or job


def in_order(submitted: list[dict[str, Any]], *, live: bool) -> list[dict[str, Any]]:
    """Returns requests as they were made: jobs held or dependent enter the log when let go.

    Those of a live cluster have numbers, which part jobs of one moment as its table did.
    """

    def made(request: dict[str, Any]) -> tuple[float, int]:
        number = int(plain_name(str(request["job"]))) if live else 0
        return float(request.get("submit_s", request["t"])), number

    return sorted(submitted, key=made)


def replay(
    path: Path, policy: str = "", *, progress: Callable[[float], None] | None = None
) -> Replayed:
    """Returns how the decisions of a policy (default: the recorded one) differ from a log's.

    Raises InputError.
    """
    playback = Playback(read_recording(path, by_life=True), policy, progress)
    try:
        return playback.play()
    except (
        ArithmeticError,
        AssertionError,
        LookupError,
        TypeError,
        ValueError,
        IllegalPlan,
    ) as error:
        raise InputError(
            str(path), f"the log contradicts itself at {playback.now:g} s", f"{error!r}"[:200]
        ) from error


class Playback:
    """A recording played again, one controller after the other, each with a memory of its own."""

    def __init__(
        self, recording: Recording, policy: str, progress: Callable[[float], None] | None
    ) -> None:
        self._recording = recording
        self._policy = policy
        self._progress = progress
        self._length_s = [float("inf")] * len(recording.trace)
        self._hear(recording.facts)
        trace, options = recording.trace, recording.options
        truth = build_physics(trace, options)
        self._physics = believed(truth, trace.jobs, options.belief, options.seed)
        learned = (fact.t for fact in recording.facts if isinstance(fact, Learned))
        self._learned_s = next(learned, float("inf"))
        self._state: ClusterState | None = None
        self._decisions = 0
        self._differences: list[Difference] = []
        self._policies: list[str] = []

    @property
    def now(self) -> float:
        """Returns how far it has come."""
        return 0.0 if self._state is None else self._state.now

    def play(self) -> Replayed:
        """Returns what every controller decides otherwise now."""
        found = spans(self._recording.facts)
        for number, span in enumerate(found, start=1):
            self._play(span, cut_off=number < len(found))
        said = ", then ".join(dict.fromkeys(self._policies))
        return Replayed(
            said,
            self._decisions,
            tuple(self._differences),
            self._recording.trace,
            starts=sum(span.recovers for span in found),
            recovering_s=sum(map(_recovering_s, found)),
        )

    def _play(self, span: ControllerSpan, *, cut_off: bool) -> None:
        manifest = self._recording.manifest
        policy = parse_policy(self._policy or span.policy or str(manifest["policy"]))
        state = self._tables(policy, span.facts[0].t)
        world = ReplayWorld(state, instants(span.facts), cut_off=cut_off)
        if span.recovers:
            world.recover()
        run_loop(world, policy, progress=self._tell)
        why = "" if span.recovers or not manifest.get("live") else NOT_RECORDED
        learned_s = self._learned_s if policy.powers & SPEEDS_MATTER else float("inf")
        for d in world.differences:
            learned = LEARNED if d.t >= learned_s else ""
            self._differences.append(replace(d, why=d.why or why or learned))
        self._decisions += world.decisions
        self._policies.append(spell(policy))
        self._hear(span.facts)

    def _tell(self, now: float) -> None:
        last_s = self._recording.facts[-1].t
        if self._progress is not None:
            self._progress(now / last_s if last_s else 1.0)

    def _hear(self, facts: Iterable[Fact]) -> None:
        """Notes what was said of lengths as jobs were submitted."""
        for fact in facts:
            if isinstance(fact, Submitted):
                self._length_s[fact.job] = fact.length_s

    def _tables(self, policy: Policy, now: float) -> ClusterState:
        """Returns the tables of a controller that starts now."""
        recording, options = self._recording, self._recording.options
        state = ClusterState(
            recording.trace.jobs,
            options.cluster,
            policy,
            physics=self._physics,
            forecast=RecordedForecast(self._length_s),
            placing=options.placing,
            switch_s={how: options.switching.cost_s(how) for how in HOW},
        )
        if self._state is not None:
            state.now = now
            take_over(state, self._state, self._length_s)
        self._state = state
        return state


def _recovering_s(span: ControllerSpan) -> float:
    """Returns for how long a controller could not decide; one killed before it could, never did."""
    if not span.recovers:
        return 0.0
    states = [fact for fact in span.facts if isinstance(fact, ControllerChanged)]
    until_s = next((fact.t for fact in states if fact.state == READY), span.facts[-1].t)
    return until_s - span.facts[0].t


def options_of(manifest: dict[str, Any]) -> Options:
    """Returns the options that a manifest says."""
    said = manifest["cluster"]
    cluster = Cluster(
        tuple(NodeGroup(**g) for g in said["groups"]),
        tuple(Link(**link) for link in said["links"]),
        tuple(QueueSpec(**q) for q in said["queues"]),
        tuple((int(node), str(state)) for node, state in said["states"]),
    )
    return Options(
        cluster=cluster,
        placing=Placing.parse(manifest["placement"]),
        switching=Switching(**manifest["switching"]),
        forecast=manifest["forecast"],
        belief=manifest["belief"],
        interference=manifest["interference"],
        cycle=manifest["cycle"],
        physics=manifest["physics"],
        profiles=tuple(manifest["profiles"]),
        window=Window(manifest["warm_up_s"], manifest["drain_s"]),
        seed=manifest["seed"],
    )


def trace_of(name: str, submitted: list[dict[str, Any]], *, live: bool = False) -> Trace:
    """Returns the jobs that records of submissions, in their order, ask for.

    Those of a `live` cluster have numbers, by which random draws go.
    """

    def numbers(key: str, usual: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        said = (r.get(key) for r in submitted)
        return np.array([usual if value is None else float(value) for value in said])

    def flags(key: str, usual: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.array([bool(r.get(key, usual)) for r in submitted])

    gpus = numbers("gpus", 1).astype(np.int64)
    labels = {
        key: Labels.of([str(r.get(key, "")) for r in submitted])
        for key in ("user", "queue", "recurrence", "model", "gpu_type")
    }
    low = [int(r.get("min_gpus", r["gpus"])) for r in submitted]
    high = [int(r.get("max_gpus", r["gpus"])) for r in submitted]
    jobs = JobTable.build(
        [plain_name(str(r["job"])) for r in submitted],
        np.array([float(r.get("submit_s", r["t"])) for r in submitted]),
        gpus,
        min_gpus=np.array(low, np.int64),
        max_gpus=np.array(high, np.int64),
        priority=numbers("priority", 0.0),
        batch_size=numbers("batch_size", 0).astype(np.int64),
        cpus=numbers("cpus", 0.0),
        memory_bytes=numbers("memory_bytes", 0.0),
        time_limit_s=numbers("time_limit_s", float("inf")),
        deadline_s=numbers("deadline_s", float("inf")),
        elastic=flags("elastic", False),
        shareable=flags("shareable", False),
        preemptible=flags("preemptible", True),
        numbered=live,
        **labels,
    )
    return Trace.of(jobs, numbers("work_s", 1.0), name)
