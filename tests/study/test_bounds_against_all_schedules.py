"""No bound exceeds the best of all schedules of a few jobs, whatever the powers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bound_looseness import KINDS, drawn, least_mean_jct_s, looseness
from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster
from dovetail.study.options import Options
from property_size import examples


@pytest.mark.parametrize("nodes", ["1x4", "1x1+1x3", "2x2"])
@pytest.mark.parametrize("powers", KINDS, ids=lambda powers: powers.words)
@examples(4)
@given(seed=st.integers(0, 2**32), jobs=st.integers(1, 3))
def test_no_bound_exceeds_the_best_of_all_schedules(
    nodes: str, powers: Powers, seed: int, jobs: int
) -> None:
    cluster = Cluster.parse(nodes)
    trace = drawn(np.random.default_rng(seed), powers, jobs, cluster)
    found = looseness(trace, powers, cluster)
    assert max(found.values()) <= 1 + 1e-6, found


def test_all_schedules_of_three_jobs_by_hand() -> None:
    # Four GPUs, linear jobs of unknown models: 2 GPUs for 100 s twice, 4 GPUs for 50 s.
    options = Options(Cluster.parse("1x4"), physics="linear")
    rows = [Row(2, 100.0), Row(2, 100.0), Row(4, 50.0)]
    # The wide one first: 50, then both others: 150, 150.
    assert least_mean_jct_s(trace_of(*rows), options, Powers()) == pytest.approx(350 / 3)
    # A GPU that two share does 0.5 of each at best when they interfere by 2: nothing is gained.
    twice = Options(Cluster.parse("1x4"), physics="linear", interference=2.0)
    willing = [Row(4, 100.0, shareable=True), Row(4, 100.0, shareable=True)]
    best = least_mean_jct_s(trace_of(*willing), twice, Powers(sharing=True))
    assert best == pytest.approx(150.0)
    free = Options(Cluster.parse("1x4"), physics="linear", interference=1.25)
    assert least_mean_jct_s(trace_of(*willing), free, Powers(sharing=True)) == pytest.approx(125.0)
