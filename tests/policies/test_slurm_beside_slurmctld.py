"""The policy `slurm` held against what a real slurmctld did, job by job.

The default tests replay kept records (`slurm_record`); the slow one plays jobs on a Slurm of its
own. Figures: docs/claims/fidelity.md, printed by `python -m tests.policies.slurm_figures`.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dovetail.policies
from dovetail.core.policy import parse_policy
from dovetail.core.view import View
from dovetail.mechanisms.slurm.catching_up import caught_up
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.state import SlurmState
from tests.policies.slurm_figures import agreement, waits
from tests.slurm_cluster import SlurmCluster, reason_to_skip
from tests.slurm_record import POLICY, RUNS, SlurmRecord, kept_record, record_of, site_cluster
from tests.slurm_replay import Times, replayed_starts, resynchronised_starts
from tests.slurm_site import INTERVAL_S, SITE, accounting, asked_jobs, play

assert dovetail.policies
kept = cache(kept_record)


def real_starts(record: SlurmRecord) -> Times:
    """Returns when each job really started."""
    assert record.trace.recorded is not None
    return record.trace.recorded.start_s


def free_agreement(record: SlurmRecord, policy: str, *, limited: bool, logged: bool) -> float:
    """Returns the fraction of jobs that start within one interval in a free replay."""
    memory = record.memory_with_passes if logged else record.memory
    starts = replayed_starts(
        record.trace,
        site_cluster(limited=limited),
        parse_policy(policy),
        memory if policy == POLICY else None,
    )
    return agreement(starts, real_starts(record))


@pytest.mark.parametrize("name", sorted(RUNS))
def test_with_slurmctlds_own_clock_a_free_replay_starts_what_it_started(name: str) -> None:
    """No decision of a quarter of an hour is another: all state but the clock is the replay's."""
    record, limited = kept(name), RUNS[name].limited
    assert free_agreement(record, POLICY, limited=limited, logged=True) >= LEAST_FREE[name]


LEAST_FREE = {"plain": 0.99, "again": 0.99, "limited": 0.99}


@pytest.mark.parametrize("name", sorted(RUNS))
def test_from_the_recorded_state_of_each_interval_it_starts_the_same(name: str) -> None:
    """The clock is nominal here: a look every second, passes at their intervals."""
    record, cluster = kept(name), site_cluster(limited=RUNS[name].limited)
    starts = resynchronised_starts(
        record, cluster, parse_policy(POLICY), every_s=INTERVAL_S, slack_s=INTERVAL_S + 0.01
    )
    assert agreement(starts, real_starts(record)) >= 0.97


def test_priorities_at_submission_are_slurms_to_the_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    record, ours = kept("plain"), dict[int, int]()

    def noting(p: SlurmParameters, view: View, state: SlurmState) -> SlurmState:
        caught = caught_up(p, view, state)
        points = dict(zip(caught.queue.jobs.tolist(), caught.queue.points, strict=True))
        for job in view.changes.arrived:
            ours.setdefault(job, int(points[job]))
        return caught

    monkeypatch.setattr("dovetail.policies.slurm.caught_up", noting)
    free_agreement(record, POLICY, limited=False, logged=True)
    assert [ours[job] for job in range(len(record.trace))] == record.first_priority


def test_other_policies_do_not() -> None:
    record = kept("plain")
    assert free_agreement(record, "backfill", limited=False, logged=False) < 0.3
    assert free_agreement(record, "fifo", limited=False, logged=False) < 0.3


def test_on_a_nominal_clock_a_replay_is_as_near_as_slurmctld_is_to_itself() -> None:
    """The same submissions twice: what a second more or less changes, in Slurm itself."""
    itself = agreement(waits(kept("plain")), waits(kept("again")))
    assert itself < 0.6
    assert free_agreement(kept("plain"), POLICY, limited=False, logged=False) >= itself - 0.05


@pytest.mark.parametrize("name", sorted(RUNS))
def test_free_replays_have_slurms_mean_wait(name: str) -> None:
    """One replay is one of many possible courses; those of ten phases of backfill surround it."""
    record, cluster = kept(name), site_cluster(limited=RUNS[name].limited)
    waits_s = []
    for phase_s in np.arange(0.0, INTERVAL_S, 0.5):
        memory = replace(record.memory, backfilled_s=record.memory.backfilled_s - phase_s)
        starts = replayed_starts(record.trace, cluster, parse_policy(POLICY), memory)
        waits_s.append(float((starts - record.trace.jobs.submit_s).mean()))
    assert np.mean(waits_s) == pytest.approx(float(waits(record).mean()), rel=0.2)


@pytest.mark.slow
@pytest.mark.skipif(bool(reason_to_skip()), reason=f"no Slurm here: {reason_to_skip()}")
def test_a_real_slurmctld_starts_what_the_policy_starts() -> None:
    """Sixty jobs, some four minutes."""
    with SlurmCluster(SITE) as cluster:
        play(cluster, list(asked_jobs(60, seed=5, span_s=70.0)))
        text = accounting(cluster)
    assert free_agreement(record_of(text), POLICY, limited=False, logged=True) >= 0.9
