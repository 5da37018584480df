"""What filling, ranking, serving and resharing promise, on any stage."""

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage
from dovetail.core.job import Floats
from dovetail.core.legality import violations
from dovetail.core.passes import fill, rank, serve
from dovetail.core.placement import Spans
from dovetail.core.policy import POWERS
from dovetail.core.resizing import reshare
from dovetail.core.units import RELATIVE_TOLERANCE
from dovetail.core.view import Running

ALL = frozenset(POWERS)


def by_length(running: Running) -> Floats:
    return running.left_s


@st.composite
def stages(draw: st.DrawFn, elastic: bool = False) -> Stage:
    """Draws a stage: some jobs wait, some run where a first fit put them."""
    cluster = draw(st.sampled_from(["1x4", "3x4", "2x2+1x6", "4x3"]))
    n = draw(st.integers(1, 10))
    rows = []
    for _ in range(n):
        gpus = draw(st.integers(1, 4))
        rows.append(
            Row(
                gpus,
                draw(st.sampled_from([1.0, 2.0, 2.0, 5.0, 9.0])),
                elastic=elastic,
                min_gpus=draw(st.integers(1, gpus)) if elastic else gpus,
                max_gpus=draw(st.integers(gpus, 8)) if elastic else gpus,
                preemptible=elastic or draw(st.integers(0, 4)) < 4,
            )
        )
    placing = ",".join(
        (
            draw(st.sampled_from(["strict", "prefer", "none"])),
            draw(st.sampled_from(["best-fit", "first-fit", "most-free"])),
            draw(st.sampled_from(["keep", "repack"])),
        )
    )
    stage = Stage(rows, "srtf", cluster, placing=placing)
    tried = draw(st.lists(st.integers(0, n - 1), unique=True))
    placed: list[tuple[int, Spans]] = []
    draft = stage.view.plan.draft()
    for job in tried:
        spans = stage.view.placing.find(draft.occupancy, stage.view.shape(job))
        if spans is not None:
            draft.place(job, spans)
            placed.append((job, spans))
    stage.view.plan.discard()
    return stage.run_jobs(*placed)


@settings(max_examples=120)
@given(stage=stages(), bypass=st.sampled_from(["strict", "skip"]))
def test_filling_starts_a_maximal_set_in_order_and_touches_nobody(
    stage: Stage, bypass: str
) -> None:
    view = stage.view
    draft, _ = fill(view, bypass)
    changes = [] if draft is None else draft.changes()
    occupancy = view.plan.occupancy if draft is None else draft.occupancy
    assert all(c.before is None for c in changes)
    assert violations(view, changes, occupancy, frozenset()) == []
    started = [c.job for c in changes]
    left = [j for j in view.waiting if j not in started]
    if bypass == "strict":
        assert [j for j in view.waiting if j in started] == list(view.waiting)[: len(started)]
        left = left[:1]
    for job in left:
        assert view.placing.find(occupancy, view.shape(job)) is None, f"job {job} fits"


@settings(max_examples=250)
@given(stage=stages(), bypass=st.sampled_from(["strict", "skip"]))
def test_ranking_never_stops_a_job_in_favour_of_one_of_no_smaller_key(
    stage: Stage, bypass: str
) -> None:
    view = stage.view
    draft, _ = rank(view, by_length, bypass)
    if draft is None:
        return
    changes = draft.changes()
    assert violations(view, changes, draft.occupancy, ALL) == []
    keys = dict(enumerate(view.progress.left_s(range(len(view.jobs)))))
    stopped = [c.job for c in changes if c.after is None]
    started = [c.job for c in changes if c.before is None]
    assert all(view.preemptible[j] for j in stopped)
    if (bypass, view.placing.running) == ("strict", "repack"):
        return  # whoever ranks behind the blocked head loses its GPUs, taken or not
    assert not stopped or started, "nobody is stopped for nothing"
    best = min((keys[j] for j in started), default=0.0)
    for job in stopped:
        if view.placing.running == "keep":
            assert best < keys[job] * (1 - RELATIVE_TOLERANCE), f"job {job} lost to no shorter one"
        else:
            assert best <= keys[job]


@settings(max_examples=150)
@given(stage=stages())
def test_ranking_leaves_nobody_waiting_who_fits(stage: Stage) -> None:
    view = stage.view
    draft, _ = rank(view, by_length, "skip")
    placed = view.running if draft is None else draft.placed
    occupancy = view.plan.occupancy if draft is None else draft.occupancy
    for job in range(len(view.jobs)):
        if job not in placed:
            assert view.placing.find(occupancy, view.shape(job)) is None, f"job {job} fits"


@settings(max_examples=150)
@given(stage=stages(), data=st.data())
def test_serving_follows_the_given_order_by_count(stage: Stage, data: st.DataObject) -> None:
    view = stage.view
    everybody = data.draw(st.permutations(range(len(view.jobs))))
    free = sum(view.cluster.capacity)
    winners = []
    fixed = [j for j in view.running if not view.preemptible[j]]
    free -= sum(view.shape(j).gpus for j in fixed)
    for job in everybody:
        if job not in fixed and view.shape(job).gpus <= free:
            free -= view.shape(job).gpus
            winners.append(job)
    before = dict(view.running)
    draft, _ = serve(view, everybody)
    changes = draft.changes()
    assert violations(view, changes, draft.occupancy, ALL) == []
    assert set(draft.placed) <= {*winners, *fixed}
    assert {j for j in before if j in winners} <= set(draft.placed)
    assert not any(c.before is not None and c.after is not None for c in changes)


@settings(max_examples=250)
@given(stage=stages(elastic=True), data=st.data())
def test_resharing_keeps_limits_and_never_gives_more_than_the_share(
    stage: Stage, data: st.DataObject
) -> None:
    view = stage.view
    pool = sum(view.cluster.capacity)
    shares: dict[int, int] = {}
    for job in data.draw(st.permutations(range(len(view.jobs)))):
        low, high = int(view.jobs.min_gpus[job]), int(view.jobs.max_gpus[job])
        if low <= pool and data.draw(st.booleans()):
            shares[job] = data.draw(st.integers(low, min(high, pool)))
            pool -= shares[job]
    before = dict(view.running)
    draft = reshare(view, shares)
    assert violations(view, draft.changes(), draft.occupancy, ALL) == []
    assert set(draft.placed) <= set(shares)
    for job, placement in draft.placed.items():
        had = before[job].gpus if job in before else 0
        assert placement.gpus <= max(shares[job], 0)
        assert placement.gpus >= min(int(view.jobs.min_gpus[job]), had or placement.gpus)
        assert all(g > 0 for _, g in placement.spans)
    if view.placing.consolidate != "strict":
        got = {j: p.gpus for j, p in draft.placed.items()}
        assert got == shares, "where gangs may be spread, every share is met in full"
    if shares == {j: p.gpus for j, p in before.items()} and view.placing.running == "keep":
        assert draft.changes() == []
