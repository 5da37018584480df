"""The live scheduler in virtual time against the simulator: the same jobs end at the same times."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from benchmarks.run_outcomes import (
    POLICIES,
    Fidelity,
    RunOutcome,
    drawn_trace,
    policies_of,
    served,
    simulated,
)
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable
from dovetail.core.policy import registered
from dovetail.core.trace import Trace
from dovetail.live.serving.virtual_live import MESSAGE_S, play
from dovetail.study.option_texts import OptionTexts

TRACE = drawn_trace(12, 0.5, 4, load=1.5, seed=3)
SWITCHING: OptionTexts = {"switching": "restart:30"}
ON: OptionTexts = {**SWITCHING, "cluster": "2x2"}
LIVE = Cluster.uniform(2, 2)


SHARED = ("muri-s", "muri-l", "gandiva", "gavel", "gimbal", "antman")
"""Policies under which jobs share GPUs, trade them, take turns or are put under limits."""
CLOSE = 0.001


def played(policy: str, message_s: float = MESSAGE_S) -> Fidelity:
    """Returns how a policy serves the trace, live in virtual time and simulated."""
    queries = play(TRACE, policy, LIVE, SWITCHING, message_s=message_s)
    return Fidelity(policy, served(queries), simulated(TRACE, policy, ON))


@pytest.mark.parametrize("policy", [*POLICIES, *SHARED, "themis", "afs-s"])
def test_live_and_simulated_agree(policy: str) -> None:
    found = played(policy)
    assert len(found.live.jct_s) == len(TRACE)
    assert abs(found.jct) < CLOSE and abs(found.makespan) < CLOSE
    assert abs(found.queue_length) < CLOSE and abs(found.efficiency) < CLOSE
    assert found.apart("waiting") < CLOSE and found.apart("cluster_efficiency") < CLOSE
    assert abs(found.worst()[1]) < CLOSE


@pytest.mark.parametrize("policy", ["gandiva", "gavel", "gimbal", "themis"])
def test_what_differs_is_the_time_that_messages_take(policy: str) -> None:
    found = played(policy, message_s=0.0)
    assert found.worst()[1] == pytest.approx(0.0, abs=1e-9)


def test_all_policies_are_those_that_run_jobs() -> None:
    assert policies_of("fifo,srtf") == ("fifo", "srtf")
    found = policies_of("all")
    assert found[: len(POLICIES)] == POLICIES and "no-op" not in found
    assert len(found) == len(set(found)) == len(registered()) - 2, (
        "no-op and heavy-edge are left out"
    )


def test_the_trace_is_worth_the_comparison() -> None:
    assert TRACE.jobs.elastic.any() and TRACE.jobs.shareable.any()
    fifo, afs = (simulated(TRACE, policy, ON) for policy in ("fifo", "afs-p"))
    assert fifo.queue_length > 1
    assert abs(afs.mean_jct_s / fifo.mean_jct_s - 1) > 0.03


def test_without_profiles_rates_are_measured_on_the_way() -> None:
    jobs = JobTable.build(
        ["1", "2"],
        np.zeros(2),
        np.ones(2, np.int64),
        max_gpus=np.full(2, 4, np.int64),
        elastic=np.ones(2, bool),
        model=TRACE.jobs.take(np.array([0, 1])).model,
    )
    trace = Trace.of(jobs, np.full(2, 1800.0), "pair")
    queries = play(trace, "afs-p", LIVE, SWITCHING, guess={"physics": "linear"})
    assert '"rate"' in (queries.meta("measured") or "")
    knowing = served(play(trace, "afs-p", LIVE, SWITCHING))
    assert served(queries).mean_jct_s < 1.25 * knowing.mean_jct_s


def test_curves_apart_weigh_their_time() -> None:
    def outcome(waiting: list[int], makespan_s: float = 4.0) -> RunOutcome:
        t_s = [float(t) for t in range(len(waiting))]
        return RunOutcome(
            {"1": 4.0}, makespan_s, 1.0, 0.0, pl.DataFrame({"t_s": t_s, "waiting": waiting})
        )

    same, more = outcome([1, 2, 1, 0]), outcome([1, 3, 1, 0], 5.0)
    assert Fidelity("x", same, same).apart("waiting") == 0.0
    assert Fidelity("x", more, same).apart("waiting") == pytest.approx(1 / 4)
    assert Fidelity("x", more, same).makespan == pytest.approx(0.25)
    assert Fidelity("x", same, same).efficiency == 0.0


@pytest.mark.parametrize(
    "policy",
    ["max-min", *(pytest.param(name, marks=pytest.mark.slow) for name in ("afs-p", "afs-l"))],
)
def test_live_and_simulated_agree_on_jobs_with_a_price_of_their_own(policy: str) -> None:
    price_s = np.where(TRACE.jobs.elastic, 20.0, 0.0)
    trace = replace(TRACE, jobs=replace(TRACE.jobs, restart_s=price_s))
    prepared: OptionTexts = {"switching": "restart:5,prepared:10"}
    live = served(play(trace, policy, LIVE, prepared))
    found = Fidelity(policy, live, simulated(trace, policy, {**ON, **prepared}))
    assert abs(found.jct) < CLOSE and abs(found.worst()[1]) < CLOSE
    without = simulated(TRACE, policy, {**ON, **prepared})
    assert found.simulated.mean_jct_s != without.mean_jct_s
