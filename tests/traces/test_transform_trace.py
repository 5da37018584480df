"""Traces made from traces, on small traces whose answers are worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import Recorded, Trace
from dovetail.core.units import DAY_S
from dovetail.traces import transform


def scene(
    submit_s: list[float], gpus: list[int], duration_s: list[float], queues: str = ""
) -> Trace:
    n = len(submit_s)
    jobs = JobTable.build(
        [str(i) for i in range(n)],
        np.array(submit_s),
        np.array(gpus),
        queue=Labels.of(list(queues)) if queues else Labels.none(n),
        deadline_s=np.array(submit_s) + 100.0,
        time_limit_s=np.full(n, 50.0),
    )
    return Trace.of(jobs, np.array(duration_s))


def test_offered_load_is_work_over_capacity_from_first_to_last_submission() -> None:
    trace = scene([10.0, 20.0, 110.0], [1, 2, 4], [100.0, 50.0, 50.0])
    assert transform.gpu_seconds(trace) == 400.0
    assert transform.offered_load(trace, 4) == 1.0
    assert transform.gpus_for_load(trace, 0.5) == 8
    assert transform.offered_load(scene([5.0, 5.0], [1, 1], [1.0, 1.0]), 4) == float("inf")


def test_the_busiest_window_by_work_and_by_arrivals_differ() -> None:
    at = [0.0, 10.0, 20.0, 5 * DAY_S, 5 * DAY_S + 5]
    trace = scene(at, [1, 1, 1, 8, 8], [10.0] * 5)
    by_work = transform.busiest_window(trace, 1.0)
    assert by_work.jobs.job_id == ("3", "4")
    assert by_work.jobs.submit_s.tolist() == [0.0, 5.0]
    by_arrivals = transform.busiest_window(trace, 1.0, by="arrivals")
    assert by_arrivals.jobs.job_id == ("0", "1", "2")
    with pytest.raises(InputError, match="did you mean 'arrivals'"):
        transform.busiest_window(trace, 1.0, by="arrival")


def test_windows_queues_and_first_jobs() -> None:
    trace = scene([0.0, 10.0, 20.0, 30.0], [1] * 4, [1.0] * 4, "abab")
    assert transform.time_window(trace, 10.0, 30.0).jobs.job_id == ("1", "2")
    assert transform.in_queues(trace, ["b"]).jobs.job_id == ("1", "3")
    assert transform.first_jobs(trace, 3).jobs.job_id == ("0", "1", "2")
    assert len(transform.first_jobs(trace, 99)) == 4
    with pytest.raises(InputError, match="queue 'c': is not in the trace"):
        transform.in_queues(trace, ["c"])


def test_stretching_moves_submissions_and_keeps_spans() -> None:
    trace = transform.stretched(scene([10.0, 20.0], [1, 1], [5.0, 6.0]), 3.0)
    assert trace.jobs.submit_s.tolist() == [10.0, 40.0]
    assert trace.duration_s.tolist() == [5.0, 6.0]
    assert trace.jobs.deadline_s.tolist() == [110.0, 140.0]
    assert trace.jobs.time_limit_s.tolist() == [50.0, 50.0]


def test_compressing_divides_every_time() -> None:
    trace = transform.compressed(scene([10.0, 20.0], [1, 1], [5.0, 6.0]), 10.0)
    assert trace.jobs.submit_s.tolist() == [1.0, 2.0]
    assert trace.duration_s.tolist() == [0.5, pytest.approx(0.6)]
    assert trace.jobs.deadline_s.tolist() == [11.0, 12.0]
    assert trace.jobs.time_limit_s.tolist() == [5.0, 5.0]


@given(st.floats(0.1, 5.0), st.integers(1, 64))
def test_a_load_by_time_is_reached_exactly(load: float, gpus: int) -> None:
    trace = scene([0.0, 7.0, 100.0], [1, 2, 4], [100.0, 50.0, 50.0])
    made = transform.with_load(trace, load, gpus)
    assert transform.offered_load(made, gpus) == pytest.approx(load)


def test_a_load_by_thinning_keeps_the_clock_and_only_lowers() -> None:
    rng = np.random.default_rng(0)
    submit = np.sort(rng.uniform(0, 1e6, 20000))
    trace = scene(submit.tolist(), [1] * 20000, [100.0] * 20000)
    made = transform.with_load(trace, 0.5, 2, by="thinning", seed=3)
    assert transform.offered_load(made, 2) == pytest.approx(0.5, rel=0.03)
    assert set(made.jobs.submit_s.tolist()) <= set(submit.tolist())
    again = transform.with_load(trace, 0.5, 2, by="thinning", seed=3)
    assert again.jobs.job_id == made.jobs.job_id
    with pytest.raises(InputError, match="thinning cannot raise it"):
        transform.with_load(trace, 5.0, 2, by="thinning")


@given(st.integers(0, 1000))
def test_models_are_drawn_among_those_that_can_use_the_gpus(seed: int) -> None:
    trace = scene([0.0] * 40, [1, 2, 4, 16] * 10, [1.0] * 40)
    models = [("small", 1), ("medium", 2), ("large", 8)]
    made = transform.assign_models(trace, models, seed=seed)
    most = dict(models)
    for gpus, model in zip(made.jobs.gpus.tolist(), made.jobs.model.texts(), strict=True):
        assert (model == "") if gpus == 16 else most[model] >= gpus
    again = transform.assign_models(trace, models, seed=seed)
    assert again.jobs.model.texts() == made.jobs.model.texts()


def test_models_are_drawn_evenly() -> None:
    n = 9000
    trace = scene([0.0] * n, [1] * n, [1.0] * n)
    made = transform.assign_models(trace, [("a", 1), ("b", 4), ("c", 2)], seed=0)
    assert (np.bincount(made.jobs.model.codes) / n).round(2).tolist() == [0.33, 0.33, 0.33]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50))
def test_adoption_grows_with_its_share(less: float, more: float, seed: int) -> None:
    less, more = sorted((less, more))
    trace = scene([0.0] * 30, [1, 2, 4] * 10, [1.0] * 30)
    few = transform.adopted(trace, elastic=less, shareable=less, seed=seed).jobs
    many = transform.adopted(trace, elastic=more, shareable=more, seed=seed).jobs
    assert not (few.elastic & ~many.elastic).any()
    assert not (few.shareable & ~many.shareable).any()
    assert (few.min_gpus[few.elastic] == 1).all()
    assert (few.max_gpus[few.elastic] == 2 * few.gpus[few.elastic]).all()
    assert (few.max_gpus[~few.elastic] == few.gpus[~few.elastic]).all()


def test_an_elastic_job_grows_to_what_its_model_can_use() -> None:
    trace = transform.assign_models(scene([0.0], [2], [1.0]), [("m", 12)], seed=0)
    made = transform.adopted(trace, elastic=1.0, seed=0, max_gpus={"m": 12}.__getitem__)
    assert made.jobs.max_gpus.tolist() == [12]
    unknown = transform.adopted(trace, elastic=1.0, seed=0, max_gpus=lambda name: 0)
    assert unknown.jobs.max_gpus.tolist() == [4]


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_shares_outside_zero_to_one_are_refused(share: float) -> None:
    trace = scene([0.0], [2], [1.0])
    with pytest.raises(InputError, match="elastic"):
        transform.adopted(trace, elastic=share, seed=0)
    with pytest.raises(InputError, match="keep"):
        transform.thinned(trace, share, seed=0)


def test_the_record_follows_the_clock_and_leaves_with_its_times() -> None:
    jobs = JobTable.build(("a", "b"), np.array([10.0, 40.0]), np.array([1, 1]))
    record = Recorded(
        np.array([20.0, np.nan]),
        np.array([50.0, 60.0]),
        np.array([15.0, np.nan]),
        np.array([1, 0]),
        Labels.of(["n1", ""]),
    )
    trace = replace(Trace.of(jobs, np.array([25.0, 5.0])), recorded=record)
    shifted = transform.rebased(trace).recorded
    assert shifted is not None
    assert shifted.start_s[0] == 10 and shifted.wait_s[0] == 15
    half = transform.compressed(trace, 2.0).recorded
    assert half is not None
    assert half.start_s[0] == 10 and half.end_s.tolist() == [25, 30] and half.wait_s[0] == 7.5
    assert transform.stretched(trace, 2.0).recorded is None
    assert transform.thinned(trace, 1.0, seed=0).recorded is None
