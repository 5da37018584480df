"""Expansions prepared while training goes on, by hand (ALGORITHMS section 2.4)."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Story, play_scene, scene_of, trace_of
from dovetail.core.errors import InputError
from dovetail.core.messages import Fact, Shrunk, Started, Switched
from dovetail.core.placement import Placement
from dovetail.core.policy import Decision
from dovetail.core.switching import Expansion, SwitchCost, Switching
from dovetail.core.view import View
from dovetail.record.log import LogWriter, fact_of, read_log
from dovetail.record.metrics import gpu_seconds
from timetable import Orders, Timetable

CODDL = "restart:30,prepared:10"


def play(
    orders: Orders, *rows: Row, switching: str = CODDL, cluster: str = "4x4", **more: object
) -> Story:
    scene = scene_of(trace_of(*rows), cluster, switching=switching, **more)  # type: ignore[arg-type]
    return play_scene(scene, Timetable(orders))


def elastic(duration_s: float, gpus: int = 2) -> Row:
    return Row(gpus, duration_s, elastic=True, min_gpus=1, max_gpus=16)


def reread(story: Story, path: Path) -> list[Fact]:
    """Returns the facts of a story of one job, written to a log and read back."""
    with path.open("w") as file:
        writer = LogWriter(file, story.scene.trace, story.scene.truth, {})
        writer.record(story.facts)
        writer.close()
    _, records = read_log(path)
    return [fact_of(r, {story.scene.trace.jobs.job_id[0]: 0}) for r in records]


def test_it_trains_on_while_new_gpus_are_made_ready() -> None:
    # 100 s on 2 GPUs; to 4 at 10 s. Until 20 s at speed 1: 20 done. Then 4 ms, then speed 2:
    # 80 / 2 = 40 s more.
    story = play([(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)})], elastic(100))
    assert story.finishes == [pytest.approx(60.004)]
    assert [(f.preparing, f.rate) for f in story.facts if isinstance(f, Started)] == [
        (0, 1),
        (2, 1),
    ]
    [switched] = [f for f in story.facts if isinstance(f, Switched)]
    assert (switched.t, switched.rate, switched.from_s) == (20, 2, pytest.approx(20.004))
    # Two GPUs idle for 10 s while they are made ready, four for 4 ms.
    assert gpu_seconds(story.tally)["switching"] == pytest.approx(20.016)


def test_without_preparation_it_restarts() -> None:
    # 10 done, 30 s of restart, 90 / 2 s more.
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)})]
    assert play(orders, elastic(100), switching="restart:30").finishes == [pytest.approx(85)]


def test_to_shrink_costs_its_four_milliseconds_at_once() -> None:
    story = play([(0, {0: ((0, 2),)}), (10, {0: ((0, 1),)})], elastic(100))
    assert story.finishes == [pytest.approx(10 + 0.004 + 180)]


def test_a_newer_order_cancels_one_under_way() -> None:
    # To 4 at 10 s, back to 2 at 15 s: nothing was lost. To 8 at 40 s, live at 50: 50 left, at 4.
    orders = [
        (0, {0: ((0, 2),)}),
        (10, {0: ((0, 4),)}),
        (15, {0: ((0, 2),)}),
        (40, {0: ((0, 4), (1, 4))}),
    ]
    story = play(orders, elastic(100))
    assert story.finishes == [pytest.approx(50.004 + 50 / 4)]
    assert len([f for f in story.facts if isinstance(f, Switched)]) == 1


def test_an_expansion_that_is_ordered_anew_all_the_time_still_ends() -> None:
    # To 8 at 10 s; every 4 s another order, of fewer GPUs or in another manner. Those that all
    # have were begun at 10 s: six train from 20 s on.
    fewer = [(0, {0: ((0, 2),)}), *((t, {0: ((0, 4), (1, n))}) for t, n in ((10, 4), (14, 3)))]
    fewer.append((18, {0: ((0, 4), (1, 2))}))
    assert play(fewer, elastic(100)).finishes == [pytest.approx(20.004 + 80 / 3)]
    # A partner that comes, and leaves with every other order, names the GPUs.
    named = Placement(((0, 4),), ((0, 1, 2, 3),)), Placement(((0, 4),))
    anew = [(0, {0: ((0, 2),)}), *((10 + 4 * n, {0: named[n % 2]}) for n in range(20))]
    assert play(anew, elastic(100)).finishes == [pytest.approx(20.004 + 80 / 2)]


def test_a_gpu_that_is_given_up_and_taken_back_is_begun_anew() -> None:
    # 4 at 10 s, 3 at 12 s, 4 again at 16 s: the fourth is ready at 26 s, and the job waits for it.
    orders = [(0, {0: ((0, 2),)}), *((t, {0: ((0, n),)}) for t, n in ((10, 4), (12, 3), (16, 4)))]
    assert play(orders, elastic(100)).finishes == [pytest.approx(26.004 + 74 / 2)]


def test_gpus_that_waited_for_others_join_at_once_when_they_no_longer_have_to() -> None:
    # 4 at 10 s are ready at 20 s, and wait for four more until 25 s; at 22 s those are given up.
    orders = [
        (0, {0: ((0, 2),)}), (10, {0: ((0, 4),)}), (15, {0: ((0, 4), (1, 4))}), (22, {0: ((0, 4),)})
    ]  # fmt: skip
    story = play(orders, elastic(100))
    assert story.finishes == [pytest.approx(22.004 + 78 / 2)]
    assert not [f for f in story.facts if isinstance(f, Switched)]


@dataclass(frozen=True)
class Watching(Timetable):
    """Notes at each decision what the view shows of job 0, and what some placements cost it."""

    asked: tuple[Placement, ...] = ()
    seen: dict[float, tuple[Expansion | None, list[SwitchCost]]] = field(default_factory=dict)

    def decide(self, view: View, memory: object) -> Decision:
        costs = [view.switch_cost(0, placement) for placement in self.asked]
        self.seen[view.now] = view.expanding.get(0), costs
        return super().decide(view, memory)


def test_the_view_shows_what_is_made_ready_and_what_another_order_would_cost() -> None:
    two, four, elsewhere = Placement(((0, 2),)), Placement(((0, 4),)), Placement(((3, 2),))
    eight = Placement(((0, 4), (1, 4)))
    # At 12 s it grows from two to four GPUs, ready at 20 s.
    orders = [(0, {0: two}), (5, {}), (10, {0: four}), (12, {}), (21, {})]
    policy = Watching(orders, asked=(two, four, eight, elsewhere))
    play_scene(scene_of(trace_of(elastic(100)), "4x4", switching=CODDL), policy)
    begun = {t: expansion for t, (expansion, _) in policy.seen.items() if expansion is not None}
    assert begun == {12: Expansion(two, 20.0)}
    free, grown, moved = (0, 0), (0.004, 10.004), (30, 30)
    expected: dict[float, list[tuple[float, float]]] = {
        0: [free, free, free, free],
        5: [free, grown, grown, moved],
        # Two GPUs may be given up again for nothing; the same order goes on.
        12: [free, (0.004, 8.004), grown, moved],
        21: [(0.004, 0.004), free, grown, moved],
    }
    for t, costs in expected.items():
        assert policy.seen[t][1] == [pytest.approx(cost) for cost in costs], t


@pytest.mark.parametrize("order_s", [11.0, 19.0, 22.0, 26.0])
def test_a_switch_costs_what_the_view_said(order_s: float) -> None:
    eight = Placement(((0, 4), (1, 4)))
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)}), (order_s, {0: eight})]
    policy = Watching(orders, asked=(eight,))
    story = play_scene(scene_of(trace_of(elastic(100)), "4x4", switching=CODDL), policy)
    told = [f for f in story.facts if isinstance(f, Started | Switched)][-1]
    [cost] = policy.seen[order_s][1]
    assert told.from_s - order_s == pytest.approx(cost.effect_s)


def test_orders_that_do_not_cancel_are_carried_out_one_after_another() -> None:
    # To 4 at 10 s would be live at 20; the order of 12 s to 8 begins only after it: 30.004 s.
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)}), (12, {0: ((0, 4), (1, 4))})]
    at_once = play(orders, elastic(100))
    one_by_one = play(orders, elastic(100), switching=CODDL + ",one-by-one")
    assert at_once.finishes == [pytest.approx(22.004 + 78 / 4)]
    # 20 done at 20 s, then 4 GPUs from 20.004 s to 30.004 s, then 8 from 30.008 s on.
    assert one_by_one.finishes == [pytest.approx(30.008 + (100 - 20 - 2 * 10) / 4)]
    switched = [f for f in one_by_one.facts if isinstance(f, Switched)]
    assert [(f.t, f.preparing) for f in switched] == [(20, 4), (pytest.approx(30.004), 0)]


def test_who_gives_up_gpus_it_trains_on_goes_on_with_those_it_keeps() -> None:
    # From nodes 0 and 1 (2 each, speed 2) to node 1 and 2 (2 each): trains on node 1 alone
    # (speed 1) until the GPUs of node 2 join.
    orders = [(0, {0: ((0, 2), (1, 2))}), (10, {0: ((1, 2), (2, 2))})]
    story = play(orders, elastic(100))
    # 20 done at 10; 4 ms; 9.996 at speed 1; 4 ms; the rest at 2.
    left = 100 - 20 - 9.996
    assert story.finishes == [pytest.approx(20.004 + left / 2)]


def test_who_keeps_no_gpu_restarts() -> None:
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((1, 2),)})]
    assert play(orders, elastic(100)).finishes == [pytest.approx(10 + 30 + 90)]
    # Also when the GPU in common was still being made ready.
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 2), (1, 2))}), (15, {0: ((1, 2),)})]
    assert play(orders, elastic(100)).finishes == [pytest.approx(15 + 30 + 85)]


def test_a_rigid_job_restarts_when_it_moves_in_part() -> None:
    orders = [(0, {0: ((0, 2), (1, 2))}), (10, {0: ((1, 2), (2, 2))})]
    assert play(orders, Row(4, 100)).finishes == [pytest.approx(10 + 30 + 90)]


def test_an_expansion_does_not_end_a_restart_under_way() -> None:
    # Stopped at 10, resumed at 20: no progress before 50. The order of 30 is live at 40; the
    # four GPUs begin together when the restart is over.
    orders = [
        (0, {0: ((0, 2),)}), (10, {0: ()}), (20, {0: ((0, 2),)}), (30, {0: ((0, 4),)}),
    ]  # fmt: skip
    assert play(orders, elastic(100)).finishes == [pytest.approx(50 + 45)]


def test_a_job_that_ends_or_loses_its_node_forgets_its_expansion() -> None:
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)})]
    assert play(orders, elastic(15)).finishes == [15]
    down = [(15.0, [(0, "down")]), (16.0, [(0, "up")])]
    again = [*orders, (16, {0: ((0, 2),)})]
    # 15 done by the loss; resumed at 16 with a restart of 30 s.
    assert play(again, elastic(100), capacity=down).finishes == [pytest.approx(46 + 85)]


def test_the_log_tells_of_preparation_and_switch(tmp_path: Path) -> None:
    story = play([(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)})], elastic(100))
    assert reread(story, tmp_path / "log.jsonl") == list(story.facts)


def test_the_words_of_the_switching_model() -> None:
    assert Switching.parse(CODDL) == Switching(resize_s=0.004, prepare_s=10)
    assert Switching.parse("prepared:5,restart:30").resize_s == 0.004
    assert not Switching.parse(CODDL + ",one-by-one").cancels
    assert "one order after another" in str(Switching.parse(CODDL + ",one-by-one"))
    for text in ("none:7", "one-by-one:5", "restart:30,one-by-one:", "none:x"):
        with pytest.raises(InputError, match="takes no number"):
            Switching.parse(text)


SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=3).map(
    lambda pairs: tuple(sorted(dict(pairs).items()))
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), SPANS), min_size=1, max_size=8),
    st.sampled_from([CODDL, CODDL + ",one-by-one", "restart:30", "restart:30,one-by-one", "none"]),
)
def test_work_is_conserved_under_any_sequence_of_resizes(
    steps: list[tuple[int, tuple[tuple[int, int], ...]]], switching: str
) -> None:
    now, orders = 0.0, []
    for wait, spans in [(0, ((0, 2),)), *steps]:
        now += wait
        orders.append((now, {0: spans}))
    # Every invariant, the work among them, is checked inside.
    story = play(orders, elastic(150), switching=switching)
    assert story.how == ["completed"]


def test_without_cancelling_gpus_change_hands_when_the_order_under_way_is_done() -> None:
    # Job 0 grows to 4 GPUs at 10 s, due at 20 s. At 12 s it is to shrink to 3 for job 1, which
    # gets its GPU at once, or, where orders are not cancelled, after 20.004 s.
    orders = [
        (0, {0: ((0, 2),)}),
        (10, {0: ((0, 4),)}),
        (12, {0: ((0, 3),), 1: ((0, 1),)}),
    ]
    rows = (elastic(100), Row(1, 5, 12))
    at_once = play(orders, *rows, cluster="1x4")
    late = play(orders, *rows, cluster="1x4", switching=CODDL + ",one-by-one")
    assert at_once.finishes[1] == 17
    assert late.finishes[1] == pytest.approx(20.004 + 5)


def test_without_cancelling_a_restart_is_finished_first() -> None:
    # Restarts of 30 s: to 4 GPUs at 10 s, until 40 s; the order of 12 s to 3 begins only then.
    orders = [
        (0, {0: ((0, 2),)}),
        (10, {0: ((0, 4),)}),
        (12, {0: ((0, 3),), 1: ((0, 1),)}),
    ]
    rows = (elastic(100), Row(1, 5, 12))
    at_once = play(orders, *rows, cluster="1x4", switching="restart:30")
    late = play(orders, *rows, cluster="1x4", switching="restart:30,one-by-one")
    # 90 s of work are left at 10 s, at 3/2 of the speed on 2 GPUs.
    assert at_once.finishes == [pytest.approx(42 + 60), 17]
    assert late.finishes == [pytest.approx(70 + 60), pytest.approx(45)]


def test_a_job_that_is_stopped_forgets_its_expansion() -> None:
    # To 4 at 10 s, stopped at 15 s with 15 done, resumed on 2 at 16 s: 85 s from 46 s on.
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 4),)}), (15, {0: ()}), (16, {0: ((0, 2),)})]
    story = play(orders, elastic(100))
    assert story.finishes == [pytest.approx(46 + 85)]
    assert not [f for f in story.facts if isinstance(f, Switched)]


def test_who_loses_gpus_in_preparation_with_their_node_trains_on() -> None:
    # Grows to node 1 at 10 s; node 1 is lost at 15 s: only a pause of 4 ms.
    orders = [(0, {0: ((0, 2),)}), (10, {0: ((0, 2), (1, 2))})]
    story = play(orders, elastic(100), capacity=[(15.0, [(1, "down")])])
    assert story.finishes == [pytest.approx(100.004)]
    assert story.tally.preemptions == [0]


def test_who_loses_gpus_it_trains_on_goes_on_with_the_others() -> None:
    # 4 GPUs on two nodes at speed 2 until 10 s; then 2 GPUs: 80 s more.
    orders = [(0, {0: ((0, 2), (1, 2))})]
    lost = [(10.0, [(1, "down")])]
    story = play(orders, elastic(100), capacity=lost)
    assert story.finishes == [pytest.approx(10.004 + 80)]
    [shrunk] = [f for f in story.facts if isinstance(f, Shrunk)]
    assert (shrunk.t, shrunk.placement.spans, shrunk.rate) == (10, ((0, 2),), 1)
    # A runtime that restarts loses it whole, and so does a job that needs more than is left.
    again = [*orders, (20, {0: ((0, 2),)})]
    restarted = play(again, elastic(100), switching="restart:30", capacity=lost)
    assert restarted.finishes == [pytest.approx(20 + 30 + 80)]
    needy = Row(4, 50, elastic=True, min_gpus=3, max_gpus=16)
    evicted = play([*orders, (20, {0: ((2, 4),)})], needy, capacity=lost)
    assert evicted.tally.preemptions == [1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), SPANS), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(1, 90),
    st.sampled_from([CODDL, CODDL + ",one-by-one"]),
)
def test_work_is_conserved_when_a_node_is_lost_meanwhile(
    steps: list[tuple[int, tuple[tuple[int, int], ...]]], node: int, at: int, switching: str
) -> None:
    now, orders = 0.0, []
    for wait, spans in [(0, ((0, 2),)), *steps]:
        now += wait
        if now < at:
            orders.append((now, {0: spans}))
    elsewhere = tuple((n, 2) for n in range(4) if n != node)
    orders.append((at + 50.0, {0: elsewhere}))
    lost = [(float(at), [(node, "down")])]
    story = play(orders, elastic(400), switching=switching, capacity=lost)
    assert story.how == ["completed"]


def test_the_log_tells_of_lost_gpus(tmp_path: Path) -> None:
    lost = [(10.0, [(1, "down")])]
    story = play([(0, {0: ((0, 2), (1, 2))})], elastic(100), capacity=lost)
    assert reread(story, tmp_path / "log.jsonl") == list(story.facts)
