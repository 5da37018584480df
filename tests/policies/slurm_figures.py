"""Prints how near the policies come to the kept records of a real slurmctld."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dovetail.policies
from dovetail.core.policy import parse_policy
from tests.slurm_follow import follow, replayed_starts
from tests.slurm_record import POLICY, RUNS, kept_record, site_cluster
from tests.slurm_site import INTERVAL_S

assert dovetail.policies


def main() -> None:
    """Prints a row for each record and policy."""
    for name, run in RUNS.items():
        record, cluster = kept_record(name), site_cluster(limited=run.limited)
        assert record.trace.recorded is not None
        real_s = record.trace.recorded.start_s
        for text in (POLICY, "backfill", "fifo:bypass=skip", "fifo"):
            policy = parse_policy(text)
            memory = record.memory if text == POLICY else None
            followed = follow(
                record.trace, cluster, policy, record.spans, patience_s=INTERVAL_S, memory=memory
            )
            errors = np.abs(followed.picked_s - real_s)
            starts = replayed_starts(record.trace, cluster, policy, memory)
            apart = np.abs(starts - real_s)
            ranks = [np.argsort(np.argsort(each)) for each in (starts, real_s)]
            print(
                f"{name} {text.partition(':')[0]:9}"
                f" picked within 5 s {(errors <= INTERVAL_S + 0.01).mean():6.1%}"
                f" within 1 s {(errors <= 1.01).mean():6.1%}"
                f" | replayed within 5 s {(apart <= INTERVAL_S + 0.01).mean():6.1%}"
                f" median {np.median(apart):5.1f} p99 {np.quantile(apart, 0.99):5.0f}"
                f" mean wait {(starts - record.trace.jobs.submit_s).mean():6.1f}"
                f" of {(real_s - record.trace.jobs.submit_s).mean():6.1f}"
                f" rank {np.corrcoef(*ranks)[0, 1]:.3f}"
            )
        waits_s = []
        for phase_s in np.arange(0.0, INTERVAL_S, 0.5):
            memory = replace(record.memory, backfilled_s=record.backfilled_s - phase_s)
            starts = replayed_starts(record.trace, cluster, parse_policy(POLICY), memory)
            waits_s.append((starts - record.trace.jobs.submit_s).mean())
        print(
            f"{name} ten phases of backfill: mean waits {min(waits_s):.1f} to {max(waits_s):.1f},"
            f" on average {np.mean(waits_s):.1f}"
        )


if __name__ == "__main__":
    main()
