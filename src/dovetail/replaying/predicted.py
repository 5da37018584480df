"""Simulates the jobs of a live cluster and compares the prediction with the real run.

External events happen at their recorded times (`replaying.script`). The policy sees the recorded
forecasts of job lengths; the actual lengths are those of the real run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from dovetail.control.loop import check_needs, check_parts
from dovetail.control.loop import run as run_loop
from dovetail.control.replay import RecordedForecast
from dovetail.core.errors import InputError
from dovetail.core.policy import Policy, parse_policy, spell
from dovetail.record.metrics import job_frame
from dovetail.record.tally import Tally
from dovetail.replaying.decisions import Recording, read_recording
from dovetail.replaying.script import Happened, happened
from dovetail.sim.scripted import ScriptedWorld
from dovetail.study.options import Options
from dovetail.study.run import build_scene, granted


@dataclass(frozen=True, slots=True)
class Prediction:
    """The real and the simulated JCT of one job."""

    job: str
    real_jct_s: float
    predicted_jct_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """The completed jobs of a live cluster against a simulation of the same jobs.

    `guessed` are the jobs whose length is a guess, `policies` those of the real run.
    """

    policy: str
    jobs: tuple[Prediction, ...]
    real_jct_s: float
    predicted_jct_s: float
    real_makespan_s: float
    predicted_makespan_s: float
    guessed: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


def predict(log: Path, policy: str = "") -> Compared:
    """Returns the completed jobs of an exported log, real and simulated. Raises InputError."""
    recording = read_recording(log)
    chosen = parse_policy(policy or str(recording.manifest["policy"]))
    real = recording.jobs()
    if not (real["end"] == "completed").any():
        raise InputError("live cluster", "no job has completed yet", "wait for one")
    events = happened(recording)
    return _compared(recording, chosen, real, _simulated(events, chosen, recording.options))


def _simulated(events: Happened, policy: Policy, options: Options) -> pl.DataFrame:
    """Returns the simulated jobs, each by its last life."""
    forecast = RecordedForecast(events.length_s, events.distributions)
    check_needs(policy, granted(forecast), options.without)
    check_parts(policy, events.trace.jobs)
    simulation = replace(options, forecast="known", belief="exact", capacity=events.capacity)
    scene = replace(build_scene(events.trace, simulation), forecast=forecast)
    jobs = events.trace.jobs
    scale = [scene.truth.structure.scale(row) for row in range(len(jobs))]
    asked, work = jobs.asked_gpus.tolist(), events.trace.duration_s.tolist()
    tally = Tally(options.cluster, asked, work, scale)
    run_loop(ScriptedWorld(scene, events.script, policy, tally), policy)
    return job_frame(events.trace, tally)[list(events.last)]


def _compared(
    recording: Recording, policy: Policy, real: pl.DataFrame, simulated: pl.DataFrame
) -> Compared:
    both = real.filter(pl.col("end") == "completed").join(
        simulated.filter(pl.col("end") == "completed").select("job_id", "finish_s"),
        on="job_id",
        suffix="_predicted",
    )
    rows = both.select("job_id", "submit_s", "finish_s", "finish_s_predicted").iter_rows()
    jobs = tuple(Prediction(job, real - at, predicted - at) for job, at, real, predicted in rows)
    first = float(both["submit_s"].min() or 0.0)  # type: ignore[arg-type]
    known = set(both["job_id"].to_list())
    return Compared(
        spell(policy),
        jobs,
        float(np.mean([j.real_jct_s for j in jobs])),
        float(np.mean([j.predicted_jct_s for j in jobs])),
        float(both["finish_s"].max() or 0.0) - first,  # type: ignore[arg-type]
        float(both["finish_s_predicted"].max() or 0.0) - first,  # type: ignore[arg-type]
        tuple(job for job in recording.guessed if job in known),
        recording.policies,
    )
