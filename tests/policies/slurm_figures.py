"""Prints how near the policies come to the kept records of a real slurmctld, and it to itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dovetail.policies
from dovetail.core.policy import parse_policy
from tests.slurm_record import POLICY, RUNS, SlurmRecord, kept_record, site_cluster
from tests.slurm_replay import Times, replayed_starts, resynchronised_starts
from tests.slurm_site import INTERVAL_S

assert dovetail.policies
ROUNDING_S = 0.01
WINDOWS_S = (5.0, 15.0, 60.0, 180.0)


def agreement(starts: Times, others: Times, within_s: float = INTERVAL_S) -> float:
    """Returns the fraction of starts that are within some seconds of others."""
    return float((np.abs(starts - others) <= within_s + ROUNDING_S).mean())


def waits(record: SlurmRecord) -> Times:
    """Returns how long each job really waited."""
    assert record.trace.recorded is not None
    return record.trace.recorded.wait_s


def main() -> None:
    """Prints a row for each record and policy, and one for two runs of slurmctld."""
    for name, run in RUNS.items():
        record, cluster = kept_record(name), site_cluster(limited=run.limited)
        submit_s = record.trace.jobs.submit_s
        real_s = submit_s + waits(record)
        for text in (POLICY, "backfill", "fifo"):
            policy = parse_policy(text)
            runs = {"": policy.initial}
            if text == POLICY:
                runs = {"nominal cycles": record.memory, "logged": record.memory_with_passes}
            for clock, memory in runs.items():
                starts = replayed_starts(record.trace, cluster, policy, memory)
                ranks = [np.argsort(np.argsort(each)) for each in (starts, real_s)]
                print(
                    f"{name} {text.partition(':')[0]:8} {clock:14} free:"
                    f" within 5 s {agreement(starts, real_s):6.1%}"
                    f" within 1 s {agreement(starts, real_s, 1.0):6.1%}"
                    f" mean wait {(starts - submit_s).mean():6.1f} of {waits(record).mean():6.1f}"
                    f" rank {np.corrcoef(*ranks)[0, 1]:.3f}"
                )
            parts = []
            for window_s in WINDOWS_S:
                starts = resynchronised_starts(
                    record, cluster, policy, every_s=window_s, slack_s=INTERVAL_S + ROUNDING_S
                )
                parts.append(f"{window_s:g} s {agreement(starts, real_s):6.1%}")
            print(f"{name} {text.partition(':')[0]:8} from the recorded state every", *parts)
        _print_phases(name, record)
    one, other = waits(kept_record("plain")), waits(kept_record("again"))
    print(
        f"slurmctld beside itself: within 5 s {agreement(one, other):6.1%}"
        f" within 1 s {agreement(one, other, 1.0):6.1%}"
        f" mean waits {one.mean():.1f} and {other.mean():.1f}"
    )


def _print_phases(name: str, record: SlurmRecord) -> None:
    policy, cluster = parse_policy(POLICY), site_cluster(limited=RUNS[name].limited)
    waits_s = []
    for phase_s in np.arange(0.0, INTERVAL_S, 0.5):
        memory = replace(record.memory, backfilled_s=record.memory.backfilled_s - phase_s)
        starts = replayed_starts(record.trace, cluster, policy, memory)
        waits_s.append((starts - record.trace.jobs.submit_s).mean())
    print(
        f"{name} ten phases of backfill: mean waits {min(waits_s):.1f} to {max(waits_s):.1f},"
        f" on average {np.mean(waits_s):.1f}"
    )


if __name__ == "__main__":
    main()
