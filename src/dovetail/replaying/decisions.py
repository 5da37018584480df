"""Replays a recorded run: feeds its events to a policy and compares the decisions with the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast

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
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.errors import IllegalPlan, InputError
from dovetail.core.job import LABELS, Bools, Floats, JobTable, Labels
from dovetail.core.messages import READY, ControllerChanged, Fact, Learned, Submitted
from dovetail.core.placing import Placing
from dovetail.core.policy import (
    UNTIL_S,
    Kept,
    Policy,
    kept_of,
    parse_policy,
    recalled,
    spell,
)
from dovetail.core.switching import Switching
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, ReservationSpec, UserLimits
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.noisy import believed
from dovetail.record.log import fact_of, read_log
from dovetail.record.metrics import Window, job_frame
from dovetail.record.tally import Tally
from dovetail.study.options import Options
from dovetail.study.run import build_physics

LogRecord = Mapping[str, object]
"""One record of an event log: JSON values by field name."""

ANEW = " begun anew "
"""Separates the name of a job from the number of its restart, where each restart is a job."""
NOT_RECORDED = "the log is of a version that did not record when controllers start and are ready"

LEARNED = "speeds were measured while it ran, and a replay goes by those first believed"
SPEEDS_MATTER = frozenset({"resize", "share", "interleave"})
"""Powers of policies whose decisions depend on the speed of jobs."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of a log: its manifest, its trace, and its facts in order."""

    manifest: LogRecord
    trace: Trace
    options: Options
    facts: tuple[Fact, ...]
    scale: tuple[float, ...]
    """The speed-up of each job over one GPU in the run."""
    guessed: tuple[str, ...] = ()
    """Jobs of a live cluster whose length is a guess."""
    after: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """The dependencies of each job of a live cluster, as kind and job."""
    limited: Mapping[int, str] = field(default_factory=dict)
    """The array of each job of a live cluster whose array limits its running tasks."""
    again_s: Mapping[int, float] = field(default_factory=dict)
    """The time of the last requeue of each job of a live cluster that restarted after its end."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Returns the policies of the run in order; a simulated run has one."""
        policies = cast("Sequence[str]", self.manifest.get("policies") or ())
        return tuple(policies) or (str(self.manifest["policy"]),)

    def tally(self) -> Tally:
        """Returns the tally of the log, which equals that of the run."""
        gpus, work = self.trace.jobs.asked_gpus.tolist(), self.trace.duration_s.tolist()
        tally = Tally(self.options.cluster, gpus, work, self.scale)
        for _, batch in groupby(self.facts, key=lambda fact: fact.t):
            tally.record(list(batch))
        return tally

    @property
    def last_asked(self) -> Trace:
        """Returns the trace with the time of the last requeue as the submission time of a job."""
        submit_s = self.trace.jobs.submit_s.copy()
        for row, again_s in self.again_s.items():
            submit_s[row] = again_s
        return replace(self.trace, jobs=replace(self.trace.jobs, submit_s=submit_s))

    def jobs(self) -> pl.DataFrame:
        """Returns the table in `jobs.csv` of the run, computed from the log."""
        return job_frame(self.last_asked, self.tally())


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay: every placement that differs from the log.

    `starts` is the number of controller starts in a live log, `recovering_s` the total time of
    recovery, in which a controller makes no decisions.
    """

    policy: str
    decisions: int
    differences: tuple[Difference, ...]
    trace: Trace
    starts: int = 0
    recovering_s: float = 0.0

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """Returns the differences that the log does not explain."""
        return tuple(d for d in self.differences if not d.why)


def read_recording(path: Path, *, by_life: bool = False) -> Recording:
    """Returns the contents of a log. Raises InputError.

    A job that was requeued after its end is one job; with `by_life`, each restart is a job.
    """
    manifest, lines = read_log(path)
    records: list[LogRecord] = list(_split_lives(lines) if by_life else lines)
    requests = _requests(records)
    if not requests:
        raise InputError(str(path), "the log contains no jobs")
    try:
        live = bool(manifest.get("live"))
        submitted = in_order(requests, live=live)
        trace = trace_of(path.stem, submitted, live=live)
        scale = tuple(
            _float(r, "scale", _float(r, "gpus")) * _float(r, "gpu_part", 1.0) for r in submitted
        )
        options = options_of(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(str(path), f"a field is missing or invalid: {error!r}") from None
    index_of = {str(r["job"]): row for row, r in enumerate(submitted)}
    return Recording(
        manifest,
        trace,
        options,
        tuple(_facts(path, records, index_of)),
        scale,
        guessed=tuple(str(r["job"]) for r in submitted if r.get("guessed")),
        after=_dependencies(submitted, index_of),
        limited={row: str(r["limited"]) for row, r in enumerate(submitted) if r.get("limited")},
        again_s={index_of[job]: t for job, t in _requeued_s(records).items()},
    )


def _requests(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Returns the first submission of each job: a withdrawn job is submitted again, in short."""
    requests: dict[str, LogRecord] = {}
    for record in records:
        if record["e"] == "submitted":
            requests.setdefault(str(record.get("job")), record)
    return [*requests.values()]


def _facts(path: Path, records: Iterable[LogRecord], index_of: Mapping[str, int]) -> Iterator[Fact]:
    for line, record in enumerate(records, start=2):
        if "job" in record and str(record["job"]) not in index_of:
            raise InputError(f"{path}, line {line}", f"job '{record['job']}' was never submitted")
        try:
            yield fact_of(record, index_of)
        except InputError as error:
            raise InputError(f"{path}, line {line}", error.what) from None


def _dependencies(
    submitted: Sequence[LogRecord], index_of: Mapping[str, int]
) -> dict[int, tuple[tuple[str, int], ...]]:
    """Returns the dependencies of each job on jobs of the log, as kind and job."""
    dependencies = {}
    for row, request in enumerate(submitted):
        pairs = cast("Iterable[tuple[str, object]]", request.get("after", ()))
        dependencies[row] = tuple(
            (kind, index_of[str(job)]) for kind, job in pairs if str(job) in index_of
        )
    return dependencies


def _float(record: LogRecord, name: str, default: float | None = None) -> float:
    """Returns a number of a record. Raises KeyError, TypeError or ValueError."""
    return float(cast(float, record[name] if default is None else record.get(name, default)))


def _submit_s(record: LogRecord) -> float:
    """Returns the submission time of a job, which may precede that of its record."""
    return _float(record, "submit_s", _float(record, "t"))


def _restarts(records: Iterable[LogRecord]) -> Iterator[tuple[LogRecord, int]]:
    """Yields each record, and how often its job was submitted again after an end until then."""
    over, restarts = set[str](), dict[str, int]()
    for record in records:
        job = str(record.get("job"))
        if record["e"] == "ended":
            over.add(job)
        elif record["e"] == "submitted" and job in over:
            over.discard(job)
            restarts[job] = restarts.get(job, 0) + 1
        yield record, restarts.get(job, 0)


def _requeued_s(records: Iterable[LogRecord]) -> dict[str, float]:
    """Returns the time of the last requeue of each job that was requeued after its end."""
    requeued: dict[str, tuple[int, float]] = {}
    for record, restart in _restarts(records):
        job = str(record.get("job"))
        # A job that is withdrawn is submitted once more without an end: the first time counts.
        if record["e"] == "submitted" and restart > requeued.get(job, (0, 0.0))[0]:
            requeued[job] = restart, _submit_s(record)
    return {job: t for job, (_, t) in requeued.items()}


def _split_lives(records: Iterable[LogRecord]) -> Iterator[LogRecord]:
    """Yields records in which each restart of a job after its end has a name of its own."""
    for record, restart in _restarts(records):
        yield {**record, "job": f"{record['job']}{ANEW}{restart}"} if restart else record


def plain_name(job: str) -> str:
    """Returns the name of a job in its log, without the number of the restart."""
    return job.rpartition(ANEW)[0] or job


def in_order(submitted: Iterable[LogRecord], *, live: bool) -> list[LogRecord]:
    """Returns submissions in order of their time, which for a held job precedes its record.

    Jobs of a live cluster have numbers, which order submissions of the same time.
    """

    def key(request: LogRecord) -> tuple[float, int]:
        number = int(plain_name(str(request["job"]))) if live else 0
        return _submit_s(request), number

    return sorted(submitted, key=key)


def replay(
    path: Path, policy: str = "", *, progress: Callable[[float], None] | None = None
) -> Replayed:
    """Returns how the decisions of a policy, by default the recorded one, differ from a log.

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
    """The replay of a recording, controller by controller, each with its own memory."""

    def __init__(
        self, recording: Recording, policy: str, progress: Callable[[float], None] | None
    ) -> None:
        self._recording = recording
        self._policy = policy
        self._progress = progress
        self._length_s = [float("inf")] * len(recording.trace)
        self._numbers: list[tuple[float, ...]] = [()] * len(recording.trace)
        self._note_lengths(recording.facts)
        trace, options = recording.trace, recording.options
        truth = build_physics(trace, options)
        self._physics = believed(truth, trace.jobs, options.belief, options.seed)
        learned = (fact.t for fact in recording.facts if isinstance(fact, Learned))
        self._learned_s = next(learned, float("inf"))
        self._state: ClusterState | None = None
        self._decisions = 0
        self._differences: list[Difference] = []
        self._policies: list[str] = []
        self._kept: Kept = {}

    @property
    def now(self) -> float:
        """Returns the current time of the replay."""
        return 0.0 if self._state is None else self._state.now

    def play(self) -> Replayed:
        """Returns the differences of all controllers."""
        controllers = spans(self._recording.facts)
        for number, span in enumerate(controllers, start=1):
            self._play(span, cut_off=number < len(controllers))
        return Replayed(
            ", then ".join(dict.fromkeys(self._policies)),
            self._decisions,
            tuple(self._differences),
            self._recording.trace,
            starts=sum(span.recovers for span in controllers),
            recovering_s=sum(map(_recovering_s, controllers)),
        )

    def _play(self, span: ControllerSpan, *, cut_off: bool) -> None:
        manifest = self._recording.manifest
        policy = parse_policy(self._policy or span.policy or str(manifest["policy"]))
        state = self._tables(policy, span.facts[0].t)
        world = ReplayWorld(state, instants(span.facts), cut_off=cut_off)
        if span.recovers:
            world.recover()
        rows = {str(row): row for row in range(len(self._recording.trace))}
        first = recalled(policy, self._kept, rows)
        run_loop(world, policy, memory=first, progress=self._report_progress)
        last = first if world.memory is None else world.memory
        self._kept = kept_of(policy, last, str) or _kept_until(self._kept, span.facts[0].t)
        why = "" if span.recovers or not manifest.get("live") else NOT_RECORDED
        learned_s = self._learned_s if policy.powers & SPEEDS_MATTER else float("inf")
        for d in world.differences:
            learned = LEARNED if d.t >= learned_s else ""
            self._differences.append(replace(d, why=d.why or why or learned))
        self._decisions += world.decisions
        self._policies.append(spell(policy))
        self._note_lengths(span.facts)

    def _report_progress(self, now: float) -> None:
        last_s = self._recording.facts[-1].t
        if self._progress is not None:
            self._progress(now / last_s if last_s else 1.0)

    def _note_lengths(self, facts: Iterable[Fact]) -> None:
        """Stores the lengths that were forecast when jobs were submitted."""
        for fact in facts:
            if isinstance(fact, Submitted):
                self._length_s[fact.job] = fact.length_s
                self._numbers[fact.job] = fact.distribution

    def _tables(self, policy: Policy, now: float) -> ClusterState:
        """Returns the state of a controller that starts now."""
        recording, options = self._recording, self._recording.options
        state = ClusterState(
            recording.trace.jobs,
            options.cluster,
            policy,
            physics=self._physics,
            forecast=RecordedForecast(self._length_s, self._numbers),
            placing=options.placing,
            switching=options.switching,
        )
        if recording.manifest.get("live"):
            state.expansions.follow_workers()
        if self._state is not None:
            state.now = now
            take_over(state, self._state)
        self._state = state
        return state


def _kept_until(kept: Kept, t: float) -> Kept:
    """Returns what an earlier policy kept, if another one took over at a time."""
    return {UNTIL_S: t, **kept} if kept else kept


def _recovering_s(span: ControllerSpan) -> float:
    """Returns the time a controller took to recover; its whole life if it was killed before."""
    if not span.recovers:
        return 0.0
    states = [fact for fact in span.facts if isinstance(fact, ControllerChanged)]
    until_s = next((fact.t for fact in states if fact.state == READY), span.facts[-1].t)
    return until_s - span.facts[0].t


def options_of(manifest: LogRecord) -> Options:
    """Returns the options in a manifest. Raises KeyError, TypeError or ValueError."""
    values: Mapping[str, Any] = manifest
    machines = values["cluster"]
    cluster = Cluster(
        tuple(NodeGroup(**g) for g in machines["groups"]),
        tuple(Link(**link) for link in machines["links"]),
        tuple(QueueSpec(**q) for q in _specs(machines, "queues")),  # type: ignore[arg-type]
        tuple(AccountSpec(**a) for a in _specs(machines, "accounts")),  # type: ignore[arg-type]
        tuple(QosSpec(**q) for q in _specs(machines, "qos")),  # type: ignore[arg-type]
        tuple(ReservationSpec(**r) for r in _specs(machines, "reservations")),  # type: ignore[arg-type]
        states=tuple((int(node), str(state)) for node, state in machines["states"]),
        users=tuple(UserLimits(**u) for u in _specs(machines, "users")),  # type: ignore[arg-type]
    )
    return Options(
        cluster=cluster,
        placing=Placing.parse(values["placement"]),
        switching=Switching(**values["switching"]),
        forecast=values["forecast"],
        belief=values["belief"],
        interference=values["interference"],
        cycle=values["cycle"],
        physics=values["physics"],
        profiles=tuple(values["profiles"]),
        window=Window(values["warm_up_s"], values["drain_s"]),
        seed=values["seed"],
    )


def _specs(machines: LogRecord, kind: str) -> list[dict[str, object]]:
    """Returns the fields of each queue, account, QOS, user or reservation, with tuples again."""
    specs = cast("Sequence[LogRecord]", machines.get(kind, ()))
    return [{name: _tuple(value) for name, value in fields.items()} for fields in specs]


def _tuple(value: object) -> object:
    return tuple(_tuple(one) for one in value) if isinstance(value, list) else value


def trace_of(name: str, submitted: Sequence[LogRecord], *, live: bool = False) -> Trace:
    """Returns the jobs of submission records, in the same order.

    Jobs of a `live` cluster have numbers, which random draws use.
    Raises KeyError, TypeError or ValueError.
    """

    def numbers(key: str, default: float) -> Floats:
        values = (r.get(key) for r in submitted)
        return np.array([default if v is None else float(cast(float, v)) for v in values])

    def flags(key: str, default: bool) -> Bools:
        return np.array([bool(r.get(key, default)) for r in submitted])

    gpus = numbers("gpus", 1).astype(np.int64)
    labels = {key: Labels.of([str(r.get(key, "")) for r in submitted]) for key in LABELS}
    low = [int(_float(r, "min_gpus", _float(r, "gpus"))) for r in submitted]
    high = [int(_float(r, "max_gpus", _float(r, "gpus"))) for r in submitted]
    jobs = JobTable.build(
        [plain_name(str(r["job"])) for r in submitted],
        np.array([_submit_s(r) for r in submitted]),
        gpus,
        min_gpus=np.array(low, np.int64),
        max_gpus=np.array(high, np.int64),
        gpu_part=numbers("gpu_part", 1.0),
        priority=numbers("priority", 0.0),
        batch_size=numbers("batch_size", 0).astype(np.int64),
        cpus=numbers("cpus", 0.0),
        memory_bytes=numbers("memory_bytes", 0.0),
        time_limit_s=numbers("time_limit_s", float("inf")),
        deadline_s=numbers("deadline_s", float("inf")),
        restart_s=numbers("restart_s", 0.0),
        elastic=flags("elastic", False),
        shareable=flags("shareable", False),
        preemptible=flags("preemptible", True),
        numbered=live,
        **labels,
    )
    return Trace.of(jobs, numbers("work_s", 1.0), name)
