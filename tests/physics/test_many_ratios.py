"""Ratios of many pairs at once are those of each pair, to the last bit."""

import numpy as np

from dovetail.physics.sharing.interference import Injected, MeasuredInterference
from dovetail.physics.sharing.service_demand import on_one_gpu
from dovetail.physics.zoo.models import zoo


def test_measured_pairs_the_law_and_unknown_models_are_as_one_by_one() -> None:
    draw, between = np.random.default_rng(5), MeasuredInterference()
    models = [*zoo().values(), None]
    batches = draw.integers(1, 512, len(models))
    loads = [on_one_gpu(one, float(b)) for one, b in zip(models, batches, strict=True)]
    loads += [on_one_gpu(model, 0.5) for model in models[::7]]
    known = [m for m in models if m is not None]
    measured = sum(between.is_measured(a, b) for a in known for b in known)
    assert 0 < measured < len(known) ** 2, "both the table and the law are asked"
    others = loads[::3]
    first, second = between.ratios(loads, others)
    single = MeasuredInterference()
    assert first.tolist() == [[single.ratio(one, other) for other in others] for one in loads]
    assert second.tolist() == [[single.ratio(other, one) for other in others] for one in loads]


def test_nobody_beside_somebody_is_an_empty_table() -> None:
    load = on_one_gpu(None, 1.0)
    for interference in (MeasuredInterference(), Injected(1.5)):
        assert [table.shape for table in interference.ratios([], [load])] == [(0, 1)] * 2
        assert [table.shape for table in interference.ratios([load], [])] == [(1, 0)] * 2
