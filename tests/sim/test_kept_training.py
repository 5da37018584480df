"""How a job trains on the GPUs it keeps while others are made ready: with the batch it had."""

import pytest

from builders import Row, Story, play_scene, scene_of, trace_of
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended, Retimed, Started, Switched
from dovetail.core.placement import Placement
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped
from timetable import Timetable


def grown(before: Placement, after: Placement, at_s: float) -> tuple[Story, Physics]:
    """Returns what comes of a job that is to go from one placement to another."""
    row = Row(4, 1000, elastic=True, min_gpus=1, max_gpus=8, batch_size=512, model="pollux/cifar10")
    trace = trace_of(row)
    truth = placed_physics(trace.jobs, Cluster.parse("4x4"), shipped())
    scene = scene_of(trace, "4x4", truth=truth, switching="restart:30,prepared:10")
    return play_scene(scene, Timetable([(0.0, {0: before}), (at_s, {0: after})])), truth


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        # GPUs given up and gained: what is left of the old ones trains with the old batch.
        (
            Placement(((0, 2), (1, 2)), batch_size=2048, accumulation_steps=4),
            Placement(((1, 2), (2, 2)), batch_size=256),
            Placement(((1, 2),), batch_size=2048, accumulation_steps=4),
        ),
        # Back to the batch as requested, where the new placement says nothing of a batch.
        (
            Placement(((0, 2), (1, 2)), batch_size=2048),
            Placement(((1, 2), (2, 2))),
            Placement(((1, 2),), batch_size=2048),
        ),
    ],
)
def test_a_job_keeps_its_batch_and_steps_until_the_new_gpus_join(
    before: Placement, after: Placement, kept: Placement
) -> None:
    story, truth = grown(before, after, at_s=60.0)
    first, grows = (f for f in story.facts if isinstance(f, Started))
    [joined] = (f for f in story.facts if isinstance(f, Switched))
    done_s = 60 * truth.rate(0, before, ())
    slow = truth.rate(0, kept, (), done_s)
    assert first.rate == truth.rate(0, before, ())
    assert (grows.preparing, grows.rate) == (2, pytest.approx(slow, rel=1e-12))
    # The manner matters: neither plain nor as ordered is it as fast.
    for other in (Placement(kept.spans), Placement(kept.spans, batch_size=256)):
        assert truth.rate(0, other, (), done_s) != pytest.approx(slow, rel=1e-3)
    if kept.accumulation_steps > 1:
        unsplit = Placement(kept.spans, batch_size=kept.batch_size)
        assert truth.rate(0, unsplit, (), done_s) != pytest.approx(slow, rel=1e-3)

    # 4 ms to let go, the rest of 10 s on what is kept, 4 ms to join, then as ordered.
    assert (joined.t, joined.from_s) == (pytest.approx(70), pytest.approx(70.004))
    done_s += slow * 9.996
    fast = truth.rate(0, after, (), done_s)
    assert joined.rate == pytest.approx(fast)
    [ended] = (f for f in story.facts if isinstance(f, Ended))
    if not after.batch_size:
        assert ended.t == pytest.approx(70.004 + (1000 - done_s) / fast)


def test_gradients_that_change_while_gpus_are_made_ready_change_the_speed() -> None:
    before, after = Placement(((0, 2), (1, 2)), batch_size=2048), Placement(((1, 2), (2, 2)))
    kept = Placement(((1, 2),), batch_size=2048)
    story, truth = grown(before, after, at_s=93.0)
    done_s, phase_s = 93 * truth.rate(0, before, ()), truth.batches.phase_end_s(0, 0.0)
    assert done_s < phase_s, "the scene is in the first phase when the GPUs are ordered"
    [retimed] = (f for f in story.facts if isinstance(f, Retimed))
    slow = truth.rate(0, kept, (), done_s)
    assert retimed.t == pytest.approx(93.004 + (phase_s - done_s) / slow)
    assert 93 < retimed.t < 103
    assert retimed.rate == pytest.approx(truth.rate(0, kept, (), phase_s)) != slow
