"""The charges of jobs of the zoo: who may share with whom, at what speeds, under which powers."""

from dataclasses import replace

import pytest

from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.placement import Placement
from dovetail.study.gpu_charges import JobInSteps, job_charges, ways_to_share
from dovetail.study.options import Options
from dovetail.study.run import build_physics

SHARING = Powers(sharing=True)
SMALL, WIDE = Row(1, 100.0, model="muri/dqn"), Row(2, 900.0, model="muri/gpt2")


def charged(*rows: Row, powers: Powers = SHARING, cluster: str = "1x4") -> Floats:
    trace, options = trace_of(*rows), Options(Cluster.parse(cluster))
    area = trace.duration_s * trace.jobs.asked_gpus
    return job_charges(trace, options.cluster, build_physics(trace, options), powers, area)


def shareable(*rows: Row) -> list[Row]:
    return [replace(row, shareable=True) for row in rows]


def test_only_jobs_whose_owners_allow_it_are_charged_less() -> None:
    assert charged(SMALL, WIDE).tolist() == [1, 1]
    assert charged(*shareable(SMALL), WIDE).tolist() == [1, 1]
    both = charged(*shareable(SMALL, WIDE))
    assert both[0] < 0.05 and both[1] > 0.95, "the small one hides beside the other"
    assert charged(*shareable(SMALL, WIDE), powers=Powers()).tolist() == [1, 1]


def test_jobs_that_do_not_fit_a_gpu_together_are_charged_the_whole_of_it() -> None:
    rows = shareable(WIDE, WIDE, SMALL)
    assert charged(*rows).min() < 1
    assert charged(*rows, cluster="1x4/1G").tolist() == [1, 1, 1]


def test_a_job_does_not_share_with_itself() -> None:
    one, two = shareable(SMALL), shareable(SMALL, SMALL)
    assert charged(*one).tolist() == [1]
    assert charged(*two) == pytest.approx([0.5, 0.5], abs=0.01)


def test_parts_of_gpus_and_unknown_stages_gain_nothing() -> None:
    part = Row(1, 100.0, gpu_part=0.5, shareable=True)
    assert charged(part, part).tolist() == [1, 1]
    unknown = shareable(Row(1, 100.0), Row(1, 100.0))
    assert charged(*unknown, powers=Powers(interleaving=True)).tolist() == [1, 1]


def test_of_a_job_that_resizes_no_neighbour_is_known() -> None:
    elastic = [replace(r, elastic=True, min_gpus=1, max_gpus=4) for r in shareable(WIDE, WIDE)]
    sized = charged(*elastic, powers=replace(SHARING, elastic=True))
    assert sized.tolist() == pytest.approx([0.5, 0.5])
    assert charged(*elastic).min() > 0.9, "as requested two of them gain little"


def test_limits_are_those_of_the_physics() -> None:
    rows = shareable(WIDE, replace(WIDE, model="muri/bert"))
    trace = trace_of(*rows)
    physics = build_physics(trace, Options(Cluster.parse("1x4")))
    sides = [JobInSteps(0, 1, 1, 2, 0), JobInSteps(1, 2, 2, 2, 0)]
    free, squeezed = ways_to_share(physics, sides, limits=True)
    on = Placement(((0, 2),), ((0, 1),))
    cut = replace(on, accumulation_steps=2)
    alone = physics.rate(0, on)
    assert free[0][0, 1] == pytest.approx(physics.rate(0, on, [(1, cut)]) / alone)
    # The second gets what the first leaves: by hand its part is 1 less the first's utilisation.
    part = 1 - physics.sharing.utilization(0)
    limited = replace(cut, fractions=(part, part))
    assert squeezed[0][0, 1] == pytest.approx(physics.rate(0, on, [(1, limited)]) / alone)
    assert squeezed[1][0, 1] == pytest.approx(physics.rate(1, limited, [(0, on)]))
    assert squeezed[0][0, 1] > free[0][0, 1]
    with_limits = charged(*rows, powers=replace(SHARING, limits=True))
    assert with_limits.sum() <= charged(*rows).sum() + 1e-9


def test_of_many_kinds_the_small_ones_are_free_guests() -> None:
    rows = [
        Row(1, 1e4 if size < 4 else 1.0, model="muri/gpt2", batch_size=size + 1, shareable=True)
        for size in range(12)
    ]
    found = charged(*rows)
    assert bool((found[4:] < 0.01).all())
    assert 0.8 < found[:4].min() < 1
