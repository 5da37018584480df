"""The policy `slurm` held against what a real slurmctld did, job by job.

The default tests follow kept records (`slurm_record`); the slow one plays jobs on a Slurm of its
own. Figures: docs/claims/fidelity.md, printed by `python -m tests.policies.slurm_figures`.
"""

from dataclasses import replace

import numpy as np
import pytest

import dovetail.policies
from dovetail.core.policy import parse_policy
from dovetail.core.view import View
from dovetail.mechanisms.slurm.catching_up import caught_up
from dovetail.mechanisms.slurm.parameters import SlurmParameters
from dovetail.mechanisms.slurm.state import SlurmState
from tests.slurm_cluster import SlurmCluster, reason_to_skip
from tests.slurm_follow import follow, replayed_starts
from tests.slurm_record import POLICY, RUNS, SlurmRecord, kept_record, record_of, site_cluster
from tests.slurm_site import INTERVAL_S, SITE, accounting, asked_jobs, play

assert dovetail.policies
LEAST_WITHIN = {"plain": 0.9, "limited": 0.97}
"""The least fraction of jobs that start within one interval of Slurm's cycles."""
ROUNDING_S = 0.01


def within(record: SlurmRecord, policy: str, *, limited: bool = False) -> float:
    """Returns the fraction of jobs that a policy picks within one interval of their real start."""
    assert record.trace.recorded is not None
    followed = follow(
        record.trace,
        site_cluster(limited=limited),
        parse_policy(policy),
        record.spans,
        patience_s=INTERVAL_S,
        memory=record.memory if policy == POLICY else None,
    )
    errors = np.abs(followed.picked_s - record.trace.recorded.start_s)
    return float((errors <= INTERVAL_S + ROUNDING_S).mean())


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_policy_starts_what_slurm_started_within_one_interval(name: str) -> None:
    record, limited = kept_record(name), RUNS[name].limited
    assert within(record, POLICY, limited=limited) >= LEAST_WITHIN[name]


def test_priorities_at_submission_are_slurms_to_the_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those of two users whose usage nearly ties for two minutes."""
    record, ours = kept_record("plain"), dict[int, int]()

    def noting(p: SlurmParameters, view: View, state: SlurmState) -> tuple[SlurmState, bool]:
        caught, happened = caught_up(p, view, state)
        points = dict(zip(caught.queue.jobs.tolist(), caught.queue.points, strict=True))
        for job in view.changes.arrived:
            ours.setdefault(job, int(points[job]))
        return caught, happened

    monkeypatch.setattr("dovetail.policies.slurm.caught_up", noting)
    within(record, POLICY)
    users = record.trace.jobs.user
    apart = {j for j, points in ours.items() if points != record.first_priority[j]}
    assert len(ours) == len(record.trace)
    assert len(apart) <= 20 and {users[job] for job in apart} == {"games", "man"}


def test_other_policies_do_not() -> None:
    record = kept_record("plain")
    assert within(record, "backfill") < 0.3
    assert within(record, "fifo") < 0.3


@pytest.mark.parametrize("name", sorted(RUNS))
def test_free_replays_have_slurms_mean_wait(name: str) -> None:
    """One replay is one of many possible courses; those of ten phases of backfill surround it."""
    record, cluster = kept_record(name), site_cluster(limited=RUNS[name].limited)
    assert record.trace.recorded is not None
    waits_s = []
    for phase_s in np.arange(0.0, INTERVAL_S, 0.5):
        memory = replace(record.memory, backfilled_s=record.backfilled_s - phase_s)
        starts = replayed_starts(record.trace, cluster, parse_policy(POLICY), memory)
        waits_s.append(float((starts - record.trace.jobs.submit_s).mean()))
    real_s = float(record.trace.recorded.wait_s.mean())
    assert min(waits_s) <= real_s <= max(waits_s)
    assert np.mean(waits_s) == pytest.approx(real_s, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(bool(reason_to_skip()), reason=f"no Slurm here: {reason_to_skip()}")
def test_a_real_slurmctld_starts_what_the_policy_starts() -> None:
    """Sixty jobs, some four minutes."""
    with SlurmCluster(SITE) as cluster:
        play(cluster, list(asked_jobs(60, seed=5, span_s=70.0)))
        text = accounting(cluster)
    assert within(record_of(text), POLICY) >= 0.85
