"""Twelve jobs that really train on this machine, two cores as slots: live against simulated.

What the simulator is given is measured anew before each policy: throughput on one slot while the
other is busy and on both, what a pair on one slot does to each other, and what a start costs beyond
the samples. Nothing is fitted to the outcome.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np

from benchmarks.live_play import LiveCluster, live_cluster, serve
from benchmarks.run_outcomes import ADOPTED, Fidelity, recorded, simulated
from dovetail.core.job import JobTable, Labels
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader
from dovetail.physics.zoo.profile import Curve, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet, dump_profiles
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.profiling.learned_profiles import learned_set
from dovetail.replaying.live_log import write_log
from dovetail.replaying.predicted import Compared, predict
from dovetail.study.option_texts import OptionTexts
from dovetail.study.options import adopted
from dovetail.wire.spec import JobSpec

ROOT = Path(__file__).resolve().parent.parent
SLOTS, JOBS, PATIENCE_S = 2, 12, 400.0
EPOCH = 1500
"""Samples of an epoch."""
BETWEEN_S = 8.0
"""Mean seconds between submissions: two slots are asked for more than they can do at first."""
SHORTEST_S, LONGEST_S = 10.0, 30.0
FIRST, ALONE_S, RUNS = 20, 10.0, 2
"""Each program runs alone for some epochs at first, and then so long at least and as often."""
PAIR_S = 12.0
"""How long each of a pair would take alone: long enough to be measured side by side."""
ENDLESS = 1_000_000
TOGETHER = "sjf-ffs"
"""It shares whenever no slot is free, whatever it is told of the pair."""


@dataclass(frozen=True, slots=True)
class Script:
    """A network of `cpu_worker` that is trained for a number of epochs."""

    model: str
    batch: int

    @property
    def words(self) -> tuple[str, ...]:
        """Returns the program, without its epochs."""
        return "-m", "benchmarks.cpu_worker", self.model, str(EPOCH), str(self.batch)

    def spec(
        self, epochs: int, gpus: int = 1, *, elastic: bool = False, share: bool = False
    ) -> JobSpec:
        """Returns a job of so many epochs."""
        return JobSpec(
            self.model,
            (sys.executable, *self.words, str(epochs)),
            str(ROOT),
            gpus=gpus,
            min_gpus=1 if elastic else gpus,
            max_gpus=SLOTS if elastic else gpus,
            trains=True,
            shareable=share,
            model=self.model,
            batch_size=self.batch,
        )


SCRIPTS = (Script("dense", 500), Script("convolutional", 500))


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured before: rates by model and workers, pairs, and a start."""

    profiles: ProfileSet
    rate: Mapping[tuple[str, int], float]
    start_s: float

    @property
    def switching(self) -> str:
        """Returns the costs in the words of `--switching`."""
        return f"per-start:{self.start_s:.2f},prepared:{self.start_s:.2f}"


def measure(*, pairs: bool) -> Bench:
    """Runs each program alone on two slots, on one beside each, then each pair on one if asked."""
    runs: dict[tuple[str, int], list[Run]] = {}
    with live_cluster(f"local:{SLOTS}", TOGETHER) as cluster:
        for s in SCRIPTS:
            runs[s.model, SLOTS] = _alone(cluster, s, SLOTS)
            runs[s.model, 1] = []
        for other in SCRIPTS:
            with _other_slot_busy(cluster, other):
                for s in SCRIPTS:
                    runs[s.model, 1] += _alone(cluster, s, 1)
        rate = {key: _rate(several) for key, several in runs.items()}
        if pairs:
            with _other_slot_busy(cluster, SCRIPTS[0]):
                for pair in combinations_with_replacement(SCRIPTS, 2):
                    _run(cluster, *(_half_of_pair(s, rate[s.model, 1]) for s in pair))
        learned = _learned(cluster)
    known = tuple(_with_curve(p, rate) for p in learned.profiles)
    every = [run.start_s for several in runs.values() for run in several]
    starts_s = [start_s for start_s in every if start_s is not None]
    return Bench(replace(learned, profiles=known), rate, float(np.mean(starts_s)))


@contextmanager
def _other_slot_busy(cluster: LiveCluster, script: Script) -> Iterator[None]:
    """Keeps one slot training for the while: so it is most of the time, and a pair has one slot."""
    numbers = cluster.client.submit(replace(script.spec(ENDLESS), preemptible=False))
    try:
        yield
    finally:
        cluster.client.cancel(*numbers)
        cluster.client.wait(*numbers, timeout_s=PATIENCE_S)


def _half_of_pair(script: Script, rate: float) -> JobSpec:
    spec = script.spec(max(1, round(PAIR_S * rate / EPOCH)), share=True)
    # Not to be parted, however much they slow each other: that is what is asked.
    return replace(spec, preemptible=False)


def _alone(cluster: LiveCluster, script: Script, slots: int) -> list[Run]:
    """Runs a program alone for as long as asked, and then as often."""
    epochs, runs = FIRST, _in_turn(cluster, script, FIRST, slots, 1)
    while len(runs) < RUNS or runs[0].trained_s < ALONE_S:
        epochs = max(epochs, math.ceil(1.2 * epochs * ALONE_S / runs[0].trained_s))
        runs = _in_turn(cluster, script, epochs, slots, RUNS)
    return runs


@dataclass(frozen=True, slots=True)
class Run:
    """How long a job took from its GPUs to its first step, and for its samples from there.

    Only a start after another job's end counts, whose process leaves first: so are most of those
    that are played.
    """

    start_s: float | None
    trained_s: float
    samples: int


def _rate(runs: Sequence[Run]) -> float:
    """Returns samples a second."""
    return sum(run.samples for run in runs) / sum(run.trained_s for run in runs)


def _in_turn(cluster: LiveCluster, script: Script, epochs: int, slots: int, runs: int) -> list[Run]:
    """Runs a job so often, one after the other, and reads in the cluster's log when it did what."""
    numbers = _run(cluster, *[script.spec(epochs, slots)] * runs)
    with StoreReader(Folder(cluster.home).store) as reader:
        return [
            _run_of(reader, number, epochs * EPOCH, follows=number != numbers[0])
            for number in numbers
        ]


def _run_of(reader: StoreReader, number: int, samples: int, *, follows: bool) -> Run:
    first: dict[str, float] = {}
    for t_s, fact in reader.facts(number):
        first.setdefault(fact["e"], t_s)
    started_s, training_s, ended_s = (first[e] for e in ("started", "measured", "ended"))
    return Run(training_s - started_s if follows else None, ended_s - training_s, samples)


def _with_curve(profile: ModelProfile, rate: Mapping[tuple[str, int], float]) -> ModelProfile:
    size = profile.batch.value.size
    curve = Curve((1, SLOTS), tuple(size / rate[profile.name, n] for n in (1, SLOTS)))
    return replace(
        profile,
        curve=Sourced(curve, Provenance.MEASURED, "runs alone"),
        max_gpus=replace(profile.max_gpus, value=SLOTS),
    )


def _run(cluster: LiveCluster, *specs: JobSpec) -> tuple[int, ...]:
    """Runs jobs that come at once to their ends; returns their numbers."""
    return serve(cluster, [(0.0, spec) for spec in specs], speed=1.0, patience_s=PATIENCE_S)


def _learned(cluster: LiveCluster) -> ProfileSet:
    with StoreReader(Folder(cluster.home).store) as reader:
        said = reader.meta("measured") or ""
    return learned_set(said, family="here", where="a run before")


def drawn(bench: Bench, sized: Bench, seed: int = 0) -> tuple[Trace, list[JobSpec]]:
    """Returns twelve jobs, by seed, as the simulator and as the live cluster have them.

    How much they train follows from what was measured at first, how long that takes from the last.
    """
    rng = np.random.default_rng(seed)
    submit_s = np.concatenate([[0.0], np.cumsum(rng.exponential(BETWEEN_S, JOBS - 1))])
    gpus = rng.choice([1, 1, 1, SLOTS], JOBS)
    kind = rng.integers(len(SCRIPTS), size=JOBS).astype(np.int32)
    wanted_s = rng.uniform(SHORTEST_S, LONGEST_S, JOBS)
    keys = [(SCRIPTS[k].model, int(n)) for k, n in zip(kind, gpus, strict=True)]
    at_first = np.array([sized.rate[key] for key in keys])
    epochs = np.maximum(1, np.round(wanted_s * at_first / EPOCH)).astype(int)
    rate = np.array([bench.rate[key] for key in keys])
    table = replace(
        JobTable.build([str(n) for n in range(1, JOBS + 1)], submit_s, gpus.astype(np.int64)),
        model=Labels(kind, tuple(s.model for s in SCRIPTS)),
    )
    plain = Trace.of(table, epochs * EPOCH / rate, "twelve")
    trace = adopted(plain, ADOPTED, seed)
    trace.jobs.max_gpus[:] = np.minimum(trace.jobs.max_gpus, SLOTS)
    specs = [
        replace(
            SCRIPTS[kind[row]].spec(
                int(epochs[row]),
                int(gpus[row]),
                elastic=bool(trace.jobs.elastic[row]),
                share=bool(trace.jobs.shareable[row]),
            ),
            duration_s=float(trace.duration_s[row]),
        )
        for row in range(JOBS)
    ]
    return trace, specs


def run(policies: Sequence[str], head: str, row: Callable[[Fidelity], str]) -> list[Fidelity]:
    """Measures and plays the jobs, once for each policy; prints the tables."""
    found: list[Fidelity] = []
    foretold: list[Compared] = []
    sized: Bench | None = None
    print(head, flush=True)
    for policy in policies:
        bench = measure(pairs="share" in parse_policy(policy).powers)
        sized = sized or bench
        began, load = time.monotonic(), os.getloadavg()[0]
        one, again = _played(policy, bench, sized)
        wall_s, load = time.monotonic() - began, max(load, os.getloadavg()[0])
        print(f"{row(one)} <!-- {wall_s:.0f} s, load {load:.1f}; {_words(bench)} -->", flush=True)
        found.append(one)
        foretold.append(again)
    print("\nWith the lengths that the jobs turned out to have (`dovetail replay`):\n")
    print("| policy | mean JCT, live | replayed | difference | makespan |\n" + "| --- " * 5 + "|")
    for one, again in zip(found, foretold, strict=True):
        jct = again.real_jct_s / again.predicted_jct_s - 1
        makespan = again.real_makespan_s / again.predicted_makespan_s - 1
        print(
            f"| {one.policy} | {again.real_jct_s:.1f} s | {again.predicted_jct_s:.1f} s"
            f" | {jct:+.3%} | {makespan:+.3%} |"
        )
    return found


def _played(policy: str, bench: Bench, sized: Bench) -> tuple[Fidelity, Compared]:
    """Plays the jobs live, in the simulator with what was measured, and replays the log."""
    trace, specs = drawn(bench, sized)
    jobs = list(zip(trace.jobs.submit_s.tolist(), specs, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "here.toml", Path(folder) / "events.jsonl"
        file.write_text(dump_profiles(bench.profiles))
        told = ("--profiles", str(file), "--switching", bench.switching)
        given: OptionTexts = {
            "cluster": f"1x{SLOTS}",
            "switching": bench.switching,
            "profiles": [str(file)],
        }
        with live_cluster(f"local:{SLOTS}", policy, told) as cluster:
            serve(cluster, jobs, speed=1.0, patience_s=PATIENCE_S)
            with StoreReader(Folder(cluster.home).store) as reader:
                write_log(reader, log)
        one = Fidelity(policy, recorded(log), simulated(trace, policy, given))
        return one, predict(log)


def _words(bench: Bench) -> str:
    rates = ", ".join(f"{m} on {n}: {r:.0f}/s" for (m, n), r in sorted(bench.rate.items()))
    pairs = ", ".join(
        f"{p.first} {p.first_ratio:.2f} beside {p.second} {p.second_ratio:.2f}"
        for p in bench.profiles.pairs
    )
    slowed = f"; pairs on one slot: {pairs}" if pairs else ""
    return f"{rates}{slowed}; a start {bench.start_s:.2f} s"
