"""Ratios of many pairs at once are those of each pair, to the last bit."""

import numpy as np

from dovetail.physics.sharing.pair_law import GpuLoad, Injected, MeasuredInterference
from dovetail.physics.zoo.models import zoo


def test_measured_pairs_the_law_and_unknown_models_are_as_one_by_one() -> None:
    draw, between = np.random.default_rng(5), MeasuredInterference()
    models = [*zoo().values(), None]
    loads = [GpuLoad(models[i], float(b)) for i, b in enumerate(draw.integers(1, 512, len(models)))]
    loads += [GpuLoad(model, 0.5) for model in models[::7]]
    known = [m for m in models if m is not None]
    measured = sum(between.is_measured(a, b) for a in known for b in known)
    assert 0 < measured < len(known) ** 2, "both the table and the law are asked"
    others = loads[::3]
    found = between.ratios(loads, others)
    assert found.tolist() == [
        [MeasuredInterference().ratio(one, other) for other in others] for one in loads
    ]


def test_nobody_beside_somebody_is_an_empty_table() -> None:
    load = GpuLoad(None, 1.0)
    assert MeasuredInterference().ratios([], [load]).shape == (0, 1)
    assert Injected(1.5).ratios([load], []).shape == (1, 0)
