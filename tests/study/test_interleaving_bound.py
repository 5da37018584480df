"""No interleaving beats the bound of jobs whose stages take turns, whatever the model."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail.policies
from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.zoo.models import zoo
from dovetail.study.bound import bound, bound_for, objection
from dovetail.study.options import Options
from dovetail.study.run import simulate

assert dovetail.policies
TURNS = Powers(interleaving=True)
MODELS = ["", *sorted(zoo())]
POLICIES = ("muri-s:tick-s=0", "muri-l:tick-s=30,always-group=true")


@st.composite
def crowds(draw: st.DrawFn) -> Trace:
    rows, submit_s = [], 0.0
    for _ in range(draw(st.integers(2, 16))):
        submit_s += draw(st.sampled_from([0.0, 0.0, 30.0, 900.0]))
        rows.append(
            Row(
                draw(st.sampled_from([1, 1, 2, 4])),
                draw(st.sampled_from([60.0, 500.5, 4000.0])),
                submit_s,
                shareable=draw(st.integers(0, 4)) > 0,
                model=draw(st.sampled_from(MODELS)),
            )
        )
    return trace_of(*rows)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30, deadline=None)
@given(
    trace=crowds(),
    cycle=st.sampled_from(["barrier", "barrier,no-contention", "overlapped,no-contention"]),
    physics=st.sampled_from(["placed", "counted", "linear"]),
)
def test_no_interleaving_beats_its_bound(name: str, trace: Trace, cycle: str, physics: str) -> None:
    options = Options(
        Cluster.parse("1x4"), cycle=cycle, physics=physics, switching=Switching.parse("none")
    )
    policy = parse_policy(name)
    found = bound_for(trace, options, policy)
    assert found is not None and found.powers == TURNS
    mean_s = simulate(trace, policy, options).number("avg_jct_s")
    assert mean_s is not None and mean_s >= found.mean_jct_s * (1 - 1e-6)


def alike(model: str, shareable: bool = True) -> Trace:
    return trace_of(*[Row(1, 1000.0, model=model, shareable=shareable)] * 8)


def test_stages_bound_more_than_seats_where_all_jobs_want_the_same_resource() -> None:
    options = Options(Cluster.parse("1x1"))
    # GPT-2 keeps the GPU busy for 96 % of an iteration: eight of them take turns on nothing. A2C
    # simulates on the CPU for most of it, which no overlapped cycle forbids several at a time.
    gpt, a2c = (bound(alike(f"muri/{m}"), options, TURNS).mean_jct_s for m in ("gpt2", "a2c"))
    alone = bound(alike("muri/gpt2"), options, Powers()).mean_jct_s
    assert a2c < 0.5 * gpt
    assert gpt == pytest.approx(alone) == pytest.approx(4500.0)


@pytest.mark.parametrize("trace", [alike("muri/gpt2", shareable=False), alike("")])
def test_who_interleaves_with_nobody_is_bound_as_if_alone(trace: Trace) -> None:
    options = Options(Cluster.parse("1x1"))
    assert bound(trace, options, TURNS).mean_jct_s == pytest.approx(
        bound(trace, options, Powers()).mean_jct_s
    )


def test_more_powers_never_raise_the_bound() -> None:
    rng = np.random.default_rng(1)
    names = [m for m in MODELS if m]
    rows = [
        Row(1, float(rng.integers(50, 900)), 20.0 * i, model=names[i % len(names)], shareable=True)
        for i in range(40)
    ]
    options = Options(Cluster.parse("1x2"))
    rigid, turns, both, elastic = (
        bound(trace_of(*rows), options, powers).mean_jct_s
        for powers in (
            Powers(),
            TURNS,
            Powers(sharing=True, interleaving=True),
            Powers(elastic=True, interleaving=True),
        )
    )
    assert both <= turns < rigid and elastic <= rigid


def test_sets_faster_than_their_members_alone_have_no_bound() -> None:
    free = replace(Options(Cluster.parse("1x4")), cycle="overlapped,no-floor")
    trace = trace_of(Row(2, 100.0))
    assert "faster than each of them alone" in objection(trace, free, TURNS)
    assert objection(trace, free, Powers()) == ""
    assert bound_for(trace, free, parse_policy("muri-s")) is None
