"""No placement of a pipeline beats its bound: what a trace counts as well placed can be beaten."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail.policies
from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.placement import Placement
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.physics.zoo.models import zoo
from dovetail.study.bound import bound_for
from dovetail.study.options import Options
from dovetail.study.run import build_physics, simulate

assert dovetail.policies
MODELS = sorted(name for name in zoo() if name.startswith("asrpt/"))
OPTIONS = Options(Cluster.parse("2x8"), switching=Switching.parse("none"))


def test_a_refined_placement_is_faster_than_alone_and_the_bound_knows() -> None:
    trace = trace_of(Row(12, 1000.0, model="asrpt/inception3"))
    policy = parse_policy("a-srpt:replicas=refined")
    mean_s = simulate(trace, policy, OPTIONS).number("avg_jct_s")
    found = bound_for(trace, OPTIONS, policy)
    assert mean_s is not None and found is not None
    # It waits for the virtual machine first: 12 of 16 GPUs for 1000 s.
    ran_s = mean_s - 750.0
    assert ran_s < 1000.0 * (1 - 1e-3)
    assert found.mean_jct_s <= ran_s * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    requested=st.sampled_from([1, 2, 4, 8, 12, 16]),
    sizes=st.sampled_from(["2x8", "1x8+2x3+1x2"]),
    order=st.permutations(range(16)),
    gpus=st.integers(1, 16),
)
def test_no_placement_exceeds_the_top_speed(
    model: str, requested: int, sizes: str, order: list[int], gpus: int
) -> None:
    cluster = Cluster.parse(sizes)
    physics = build_physics(trace_of(Row(requested, 1000.0, model=model)), Options(cluster))
    seats = [node for node, size in enumerate(cluster.installed) for _ in range(size)]
    spans = tuple((seats[rank], 1) for rank in order[:gpus])
    speed = physics.rate(0, Placement(spans), ())
    assert speed <= physics.speed.top(0, gpus) * (1 + 1e-9)


@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_a_plain_job_is_never_faster_than_well_placed(gpus: int) -> None:
    physics = build_physics(trace_of(Row(4, 1000.0, model="pollux/imagenet")), OPTIONS)
    spread_out = physics.rate(0, Placement(tuple((n % 2, 1) for n in range(gpus))), ())
    assert spread_out <= physics.speed.top(0, gpus)
