"""The smallest mix of GPU types for a target: the search, and an answer worked by hand."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.switching import Switching
from dovetail.study.cells import Premise
from dovetail.study.changes import Grid, Setting, cells_of
from dovetail.study.mix_search import FACTORS, TRIES_MAX, MixSearch
from dovetail.study.options import Options
from dovetail.study.prices import GpuPrices
from dovetail.study.target import TargetAnswer, parse_target
from dovetail.study.target_mix import smallest_mixes

A100, V100 = "a100", "v100"


@given(
    start=st.lists(st.integers(1, 12), min_size=2, max_size=3),
    needs=st.lists(st.lists(st.integers(1, 40), min_size=3, max_size=12), min_size=3, max_size=3),
    part=st.floats(0.1, 1.0),
)
def test_the_search_ends_where_no_group_can_lose_a_node(
    start: list[int], needs: list[list[int]], part: float
) -> None:
    """A job of a group is served as soon as its group has as many nodes as it needs."""
    groups = [np.array(each) for each in needs[: len(start)]]
    wanted = part * sum(map(len, groups))
    search = MixSearch(tuple(start), np.array([4.0, 2.0, 1.0][: len(start)]), wanted)

    def served(mix: tuple[int, ...]) -> list[float]:
        return [float((jobs <= nodes).sum()) for jobs, nodes in zip(groups, mix, strict=True)]

    while batch := search.wanted():
        for mix in batch:
            search.note(mix, served(mix), keeps_all=True)
    assert len(search.reached) <= TRIES_MAX + 10
    best, largest = search.answer, [max(1, round(n * max(FACTORS))) for n in start]
    if best is None:
        assert sum(served(tuple(largest))) < wanted
        return
    assert sum(served(best)) >= wanted - 1e-9
    for at, nodes in enumerate(best):
        fewer = (*best[:at], nodes - 1, *best[at + 1 :])
        assert nodes == 1 or sum(served(fewer)) < wanted
    # Among the numbers that were tried no combination is smaller.
    for mix in product(*search.served):
        assert search.weight(mix) >= search.weight(best) or sum(served(mix)) < wanted


def answer_of(prices: GpuPrices | None = None) -> TargetAnswer:
    """Ten one-GPU jobs at once, six for one type and four for the other; nine are to start."""
    rows = [Row(1, 1000.0, gpu_type=A100)] * 6 + [Row(1, 1000.0, gpu_type=V100)] * 4
    options = Options(Cluster.parse("2x2:a100+2x1:v100"), switching=Switching.parse("none"))
    cells = cells_of(Setting(options.cluster, "fifo:bypass=skip"), Grid(), cross=False)
    target = parse_target("90% of jobs start within 10 min")
    (answer,), _ = smallest_mixes(
        Premise(trace_of(*rows), options), cells, target, prices, processes=1
    )
    return answer


def test_the_fewest_gpus_serve_nine_of_ten_jobs() -> None:
    # Three nodes of two A100 serve six jobs, and three of the four others make nine.
    answer = answer_of()
    assert (answer.cluster, answer.nodes) == ("3x2:a100 + 3x1:v100", 6)
    assert answer.sentence.startswith("3x2:a100 + 3x1:v100 (9 GPUs) reach 90.0 %: the fewest")
    assert "with 2 of a100 70.0 %; with 2 of v100 80.0 %" in answer.sentence
    rows = answer.table.to_dicts()
    assert rows[0]["cluster"] == "2x2:a100 + 2x1:v100"
    assert [row["reached"] for row in rows if row["cluster"] == answer.cluster] == [True]


def test_with_prices_the_cheapest_mix_is_the_answer() -> None:
    answer = answer_of(GpuPrices({A100: 1.0, V100: 0.1}))
    assert answer.cluster == "3x2:a100 + 3x1:v100"
    assert "the cheapest of" in answer.sentence
    assert answer.table.filter(answer.table["cluster"] == answer.cluster)[
        "cost_per_month"
    ].to_list() == [720 * 6.3]
