"""The policy `slurm` held against what a real slurmctld did, job by job.

The default tests follow kept records (`slurm_record`); the slow one plays jobs on a Slurm of its
own. Figures: docs/claims/fidelity.md, printed by `python -m tests.policies.slurm_figures`.
"""

import numpy as np
import pytest

import dovetail.policies
from dovetail.core.policy import parse_policy
from tests.slurm_cluster import SlurmCluster, reason_to_skip
from tests.slurm_follow import follow, replayed_starts
from tests.slurm_record import POLICY, RUNS, SlurmRecord, kept_record, record_of, site_cluster
from tests.slurm_site import INTERVAL_S, SITE, accounting, asked_jobs, play

assert dovetail.policies
LEAST_WITHIN = {"plain": 0.9, "limited": 0.9}
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


def test_other_policies_do_not() -> None:
    record = kept_record("plain")
    assert within(record, "backfill") < 0.3
    assert within(record, "fifo") < 0.3


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_free_replay_has_slurms_mean_wait(name: str) -> None:
    record, cluster = kept_record(name), site_cluster(limited=RUNS[name].limited)
    starts = replayed_starts(record.trace, cluster, parse_policy(POLICY), record.memory)
    assert record.trace.recorded is not None
    real_s = float(record.trace.recorded.wait_s.mean())
    ours_s = float((starts - record.trace.jobs.submit_s).mean())
    assert ours_s == pytest.approx(real_s, rel=0.15)


@pytest.mark.slow
@pytest.mark.skipif(bool(reason_to_skip()), reason=f"no Slurm here: {reason_to_skip()}")
def test_a_real_slurmctld_starts_what_the_policy_starts() -> None:
    """Sixty jobs, some four minutes."""
    with SlurmCluster(SITE) as cluster:
        play(cluster, list(asked_jobs(60, seed=5, span_s=70.0)))
        text = accounting(cluster)
    assert within(record_of(text), POLICY) >= 0.85
