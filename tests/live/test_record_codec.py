"""Records and requests of jobs as texts, and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.placement import Interleave, Placement
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.store.record_codec import record_of, record_text, spec_of, spec_text
from dovetail.wire.codec import WireError
from dovetail.wire.spec import EACH_GPU, Dependency, JobSpec

whole = st.integers(0, 10**9)
seconds = st.floats(0, 1e12)
texts = st.text(max_size=12)


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    gpus = sum(sizes)
    return Placement(
        tuple(enumerate(sizes)),
        draw(st.sampled_from([(), tuple(tuple(range(size)) for size in sizes)])),
        draw(st.integers(1, 8)),
        draw(st.sampled_from([(), (0.5,) * gpus])),
        draw(st.sampled_from([(), tuple(range(1, gpus + 1))])),
        draw(st.sampled_from([None, Interleave(3, 1)])),
        draw(whole),
    )


records = st.builds(
    JobRecord,
    job=whole,
    state=st.sampled_from(State),
    submit_s=seconds,
    generation=whole,
    placement=st.none() | placements(),
    members=st.lists(st.builds(GangMember, whole, whole, whole), max_size=3).map(tuple),
    group=st.lists(whole, max_size=3).map(tuple),
    next_worker=whole,
    done_s=seconds,
    rate=seconds,
    since_s=seconds,
    first_start_s=seconds | st.just(float("inf")),
    end_s=seconds | st.just(float("inf")),
    held=st.booleans(),
    retries=whole,
    reason=texts,
    detail=texts,
    ending=st.none() | st.sampled_from(sorted(TERMINAL)),
    exit_code=st.none() | st.integers(-64, 255),
    samples=whole,
)


@given(records)
@settings(max_examples=80)
def test_a_record_comes_back_as_it_was(record: JobRecord) -> None:
    again = record_of(record_text(record))
    assert again == record
    assert type(again.state) is State
    assert again.ending is None or type(again.ending) is State


@given(
    st.builds(
        JobSpec,
        name=texts,
        command=st.lists(texts, min_size=1, max_size=3).map(tuple),
        workdir=texts,
        script=texts,
        priority=st.floats(-1e9, 1e9),
        time_limit_s=st.floats(1, 1e9) | st.just(float("inf")),
        environment=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
        after=st.lists(st.builds(Dependency, st.just("afterok"), whole), max_size=2).map(tuple),
        hold=st.booleans(),
    )
)
@settings(max_examples=60)
def test_a_request_comes_back_as_it_was(spec: JobSpec) -> None:
    assert spec_of(spec_text(spec)) == spec


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "[]",
        '{"job":1',
        '{"job":"1"}',
        '{"job":1,"state":"LOST"}',
        '{"job":1,"ending":"RUNNING AWAY"}',
        '{"job":1,"surprise":2}',
        '{"job":1,"placement":{"spans":[]}}',
        '{"job":1,"placement":{"spans":[[0,1]],"gpus":7}}',
        '{"job":1,"members":[{"worker":0,"node":0}]}',
        '{"job":1,"done_s":NaN}',
    ],
)
def test_a_damaged_record_is_refused(damaged: str) -> None:
    with pytest.raises(WireError):
        record_of(damaged)


def test_what_could_not_be_read_again_is_not_written() -> None:
    nan = float("nan")
    with pytest.raises(WireError, match=r"done_s: expected float, got 'nan'"):
        record_text(JobRecord(7, done_s=nan))
    with pytest.raises(WireError, match="priority"):
        spec_text(JobSpec("a", ("b",), "/", priority=nan))
    named = JobSpec("NaN", ("NaN",), "/")
    assert spec_of(spec_text(named)) == named
    assert record_of(record_text(JobRecord(7, detail="NaN"))).detail == "NaN"


def test_usual_values_take_no_room() -> None:
    assert record_text(JobRecord(7)) == '{"job":7}'


def test_a_request_without_ntasks_keeps_the_meaning_it_was_accepted_with() -> None:
    """As it was stored before jobs had `ntasks`: its program ran on each GPU."""
    older = '{"name":"a","command":["x"],"workdir":"/","gpus":2,"min_gpus":2,"max_gpus":2}'
    spec = spec_of(older)
    assert (spec.ntasks, spec.tasks, spec.slurm_variables) == (EACH_GPU, 2, True)
    assert spec_of(spec_text(spec)) == spec


def test_a_request_of_today_runs_once_unless_it_says_otherwise() -> None:
    two = {"gpus": 2, "min_gpus": 2, "max_gpus": 2}
    once = JobSpec("a", ("x",), "/", **two)  # type: ignore[arg-type]
    assert spec_of(spec_text(once)) == once and once.tasks == 1
    twice = JobSpec("a", ("x",), "/", **two, ntasks=2)  # type: ignore[arg-type]
    assert spec_of(spec_text(twice)).tasks == 2
