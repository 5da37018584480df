"""No policy beats the bound that may judge it, and a bound that may not judge is not shown."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail.policies
from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy, registered
from dovetail.core.switching import Switching
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import Trace
from dovetail.physics.zoo.device import device
from dovetail.record.metrics import Window
from dovetail.study.bound import bound, bound_for, judges, objection, powers_of
from dovetail.study.options import Options
from dovetail.study.run import placeable, simulate
from property_size import examples

assert dovetail.policies
RIGID, ELASTIC, SHARING = Powers(), Powers(elastic=True), Powers(sharing=True)
POLICIES = [n for n in registered() if n != "no-op" and judges(parse_policy(n))]
MIXED = NodeGroup("old", 1, 6, "v100"), NodeGroup("new", 1, 4, "t4"), NodeGroup("more", 1, 6, "t4")
OWNED = (QueueSpec("q", groups=("new", "more")),)
MIXED_CLUSTERS = {
    "types": Cluster(MIXED),
    "an owner": Cluster(MIXED, queues=OWNED),
    "an owner of one type": Cluster(tuple(replace(g, gpu_type="") for g in MIXED), queues=OWNED),
}
MODELS = ["", "afs/googlenet", "pollux/bert", "muri/dqn", "muri/vgg19", "nobody-knows-me"]


@st.composite
def traces(draw: st.DrawFn, types: tuple[str, ...] = ("",)) -> Trace:
    rows, t = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        t += draw(st.sampled_from([0.0, 0.0, 10.0, 300.0, 2000.0]))
        gpus = draw(st.integers(1, 6))
        elastic = draw(st.booleans())
        rows.append(
            Row(
                gpus,
                draw(st.sampled_from([1.0, 60.0, 500.5, 4000.0])),
                submit_s=t,
                elastic=elastic,
                shareable=draw(st.booleans()),
                min_gpus=1 if elastic else gpus,
                max_gpus=gpus + 5 if elastic else gpus,
                preemptible=draw(st.integers(0, 5)) < 5,
                model=draw(st.sampled_from(MODELS)),
                gpu_type=draw(st.sampled_from(types)),
                queue=draw(st.sampled_from(["", "q"])) if len(types) > 1 else "",
            )
        )
    return trace_of(*rows)


@pytest.mark.parametrize("name", POLICIES)
@examples(10)
@given(
    trace=traces(),
    cluster=st.sampled_from(["2x4", "3x2", "1x6", "1x4+2x2"]),
    placing=st.sampled_from(["strict", "prefer", "none,first-fit,repack"]),
    physics=st.sampled_from(["placed", "counted", "linear"]),
    switching=st.sampled_from(["none", "restart:30"]),
    breaks=st.booleans(),
)
def test_no_policy_beats_the_bound_that_may_judge_it(
    name: str,
    trace: Trace,
    cluster: str,
    placing: str,
    physics: str,
    switching: str,
    breaks: bool,
) -> None:
    policy = parse_policy(name)
    options = Options(
        Cluster.parse(cluster),
        placing=Placing.parse(placing),
        switching=Switching.parse(switching),
        physics=physics,
        capacity=((50.0, ((0, "down"),)), (700.0, ((0, "up"),))) if breaks else (),
    )
    try:
        placeable(trace, options)
    except InputError:
        with pytest.raises(InputError, match="no job fits"):
            bound_for(trace, options, policy)
        return
    found = bound_for(trace, options, policy)
    assert found is not None
    result = simulate(trace, policy, options)
    mean_s, makespan_s = result.number("avg_jct_s"), result.number("makespan_s")
    assert result.number("jobs") == found.jobs
    assert mean_s is not None and mean_s >= found.mean_jct_s * (1 - 1e-6)
    assert makespan_s is not None and makespan_s >= found.makespan_s * (1 - 1e-9)


@pytest.mark.parametrize("name", POLICIES)
@examples(7)
@given(
    untyped=traces(),
    typed=traces(("", "v100", "t4", "t4|v100")),
    cluster=st.sampled_from(sorted(MIXED_CLUSTERS)),
    placing=st.sampled_from(["strict", "prefer", "none,first-fit,repack"]),
    physics=st.sampled_from(["placed", "linear"]),
)
def test_no_policy_beats_the_bound_of_a_cluster_of_several_types_and_owners(
    name: str, untyped: Trace, typed: Trace, cluster: str, placing: str, physics: str
) -> None:
    policy, trace = parse_policy(name), untyped if "one type" in cluster else typed
    options = Options(MIXED_CLUSTERS[cluster], placing=Placing.parse(placing), physics=physics)
    try:
        placeable(trace, options)
    except InputError:
        return
    found, result = bound_for(trace, options, policy), simulate(trace, policy, options)
    assert found is not None
    mean_s, makespan_s = result.number("avg_jct_s"), result.number("makespan_s")
    assert result.number("jobs") == found.jobs
    assert mean_s is not None and mean_s >= found.mean_jct_s * (1 - 1e-6)
    assert makespan_s is not None and makespan_s >= found.makespan_s * (1 - 1e-9)


def test_jobs_of_two_types_do_not_wait_for_each_other() -> None:
    rows = [Row(4, 100.0, gpu_type=kind) for kind in ("v100", "v100", "t4", "t4")]
    found = bound(trace_of(*rows), Options(Cluster.parse("1x4:v100+1x4:t4")), RIGID)
    assert found.mean_jct_s == pytest.approx(150.0)
    assert found.makespan_s == pytest.approx(200.0)
    anywhere = bound(
        trace_of(*[replace(r, gpu_type="") for r in rows]),
        Options(Cluster.parse("1x4:v100+1x4:t4")),
        RIGID,
    )
    assert anywhere.mean_jct_s <= found.mean_jct_s


def test_faster_gpus_bound_the_jobs_that_may_use_them() -> None:
    row = Row(4, 100.0, model="afs/googlenet", gpu_type="v100|a100")
    options = Options(Cluster.parse("1x4:v100+1x4:a100"))
    speed = device("a100").speed.value / device("v100").speed.value
    found = bound(trace_of(row), options, RIGID)
    assert found.mean_jct_s == pytest.approx(100.0 / speed)
    slower = bound(trace_of(replace(row, gpu_type="a100|v100")), options, RIGID)
    assert slower.mean_jct_s == pytest.approx(100.0), "its length is that on an A100"
    on_v100 = bound(trace_of(replace(row, gpu_type="v100")), options, RIGID)
    assert on_v100.mean_jct_s == pytest.approx(100.0)


def test_powers_decide_which_bound_judges() -> None:
    assert powers_of(parse_policy("srtf")) == RIGID
    assert powers_of(parse_policy("max-min")) == ELASTIC
    assert judges(parse_policy("max-min"))
    assert not judges(parse_policy("pollux")), "another batch is another amount of work"


def test_more_powers_never_raise_a_bound() -> None:
    rows = [Row(2, 100.0, i * 10.0, elastic=True, min_gpus=1, max_gpus=4) for i in range(20)]
    options = Options(Cluster.parse("2x4"))
    rigid, elastic, sharing = (
        bound(trace_of(*rows), options, p).mean_jct_s for p in (RIGID, ELASTIC, SHARING)
    )
    assert elastic < rigid
    assert sharing == rigid, "no owner allows sharing"
    willing = [Row(2, 100.0, i * 10.0, shareable=True) for i in range(20)]
    assert bound(trace_of(*willing), options, SHARING).mean_jct_s < rigid


def test_a_job_alone_is_bound_by_its_duration() -> None:
    found = bound(trace_of(Row(2, 100.0)), Options(Cluster.parse("1x4")), RIGID)
    assert (found.mean_jct_s, found.makespan_s) == pytest.approx((100.0, 100.0))


def test_two_jobs_that_fill_the_cluster_wait_for_each_other() -> None:
    found = bound(trace_of(Row(4, 100.0), Row(4, 100.0)), Options(Cluster.parse("1x4")), RIGID)
    assert found.mean_jct_s == pytest.approx(150.0)
    assert found.makespan_s == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("change", "powers", "words"),
    [
        ({"cancelled": "clock"}, RIGID, "by the clock"),
        ({"window": Window(10.0, 0.0)}, RIGID, "window"),
    ],
)
def test_where_an_assumption_breaks_no_bound_is_given(
    change: dict[str, object], powers: Powers, words: str
) -> None:
    options = replace(Options(Cluster.parse("1x4")), **change)  # type: ignore[arg-type]
    trace = trace_of(Row(2, 100.0))
    assert words in objection(trace, options, powers)
    assert bound_for(trace, options, parse_policy("fifo")) is None


def test_a_limit_above_every_duration_only_objects_to_those_who_slow_jobs_down() -> None:
    options = Options(Cluster.parse("1x4"))
    roomy, tight = (trace_of(Row(2, 100.0, time_limit_s=s)) for s in (150.0, 50.0))
    assert objection(roomy, options, RIGID) == ""
    assert "run slower" in objection(roomy, options, ELASTIC)
    assert "time limits" in objection(tight, options, RIGID)


def test_jobs_that_never_fit_are_left_out_of_the_bound() -> None:
    options = Options(Cluster.parse("1x4"))
    found = bound(trace_of(Row(2, 100.0), Row(8, 1e6)), options, RIGID)
    assert (found.jobs, found.mean_jct_s) == (1, pytest.approx(100.0))
    with pytest.raises(InputError, match="no job fits"):
        bound(trace_of(Row(8, 1.0)), options, RIGID)
    with pytest.raises(InputError, match="no usable job"):
        bound(trace_of(Row(8, 1.0)).take(np.zeros(0, np.int64)), options, RIGID)
