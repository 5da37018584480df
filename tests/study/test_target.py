"""The smallest cluster for a target: the grammar, the search, and answers worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.study.cells import Premise
from dovetail.study.changes import Grid, Setting, cells_of, group_called
from dovetail.study.options import Options
from dovetail.study.prices import GpuPrices
from dovetail.study.target import (
    CHECKS,
    NEIGHBOURS,
    TARGET_COLUMNS,
    NodeSearch,
    Target,
    TargetAnswer,
    parse_target,
    smallest,
)


def answers_of(
    trace: Trace,
    cluster: str,
    target: str,
    *,
    grid: Grid | None = None,
    gpu_type: str = "",
    processes: int = 1,
    policy: str = "fifo",
) -> tuple[list[TargetAnswer], tuple[str, ...]]:
    options = Options(Cluster.parse(cluster), switching=Switching.parse("none"))
    cells = cells_of(Setting(options.cluster, policy), grid or Grid(), cross=False)
    return smallest(
        Premise(trace, options),
        cells,
        parse_target(target),
        lambda machines: group_called(machines, gpu_type, "--target", "--type TYPE"),
        GpuPrices({}, 1.0),
        processes=processes,
    )


def test_ten_jobs_at_once_need_nine_gpus_for_nine_to_start_at_once() -> None:
    (answer,), notes = answers_of(
        trace_of(*[Row(1, 1000.0)] * 10), "2x1", "90% of 1-GPU jobs start within 10 min"
    )
    assert answer.nodes == 9
    assert (
        answer.sentence
        == "9 nodes (9 GPUs) reach 90.0 %; 8 reach 80.0 %; no smaller number does (all tried)."
    )
    rows = {row["nodes"]: row for row in answer.table.to_dicts()}
    assert list(rows) == [2, 7, 8, 9, 10, 11]  # what there is, and two neighbours on each side
    assert [rows[n]["share"] for n in (2, 8, 9, 10)] == pytest.approx([0.2, 0.8, 0.9, 1.0])
    assert [row["reached"] for row in rows.values()] == [False, False, False, True, True, True]
    assert rows[9]["cost_per_month"] == 9 * 720
    assert rows[8]["avg_wait_s"] == 200.0
    assert dict(answer.table.schema) == dict(TARGET_COLUMNS)
    assert notes[0].startswith("Users do not react: the same 10 jobs")
    assert "(10 jobs)" in notes[1]


def test_a_cluster_that_is_larger_than_needed_shrinks() -> None:
    (answer,), _ = answers_of(
        trace_of(*[Row(1, 1000.0)] * 10), "40x1", "50% of jobs wait at most 0 s"
    )
    assert answer.nodes == 5


def test_the_time_to_finish_includes_the_run() -> None:
    # One GPU: ends at 1000, 2000, 3000, 4000. Two GPUs: 1000, 1000, 2000, 2000.
    (answer,), _ = answers_of(
        trace_of(*[Row(1, 1000.0)] * 4), "1x1", "100% of jobs finish within 2000 s"
    )
    assert answer.nodes == 2


def test_only_the_jobs_that_are_meant_count() -> None:
    rows = [Row(1, 1000.0, queue="dev"), Row(2, 1000.0, queue="prod"), Row(1, 1000.0, queue="dev")]
    for target, nodes in (
        ("100% of 1-GPU jobs start within 1 min", 4),
        ("100% of 2-GPU jobs start within 1 min", 3),
        ("50% of jobs in queue dev start within 1 min", 2),  # one would leave out the job of two
    ):
        (answer,), _ = answers_of(trace_of(*rows), "2x1", target)
        assert answer.nodes == nodes, target


def test_a_smaller_cluster_that_leaves_jobs_out_is_no_answer() -> None:
    rows = trace_of(Row(1, 10.0), Row(4, 10.0))
    (answer,), _ = answers_of(rows, "6x1", "100% of 1-GPU jobs start within 1 h")
    assert answer.nodes == 4
    assert "3 reach 100.0 %, but leave jobs out that can never fit" in answer.sentence
    assert answer.table["left_out_jobs"].to_list() == [1, 1, 0, 0, 0]


def test_a_job_that_can_never_fit_misses_the_target() -> None:
    rows = trace_of(Row(1, 10.0), Row(8, 10.0))
    (answer,), notes = answers_of(rows, "1x1", "100% of jobs start within 1 h")
    assert answer.nodes == 8
    assert "on a cluster that all jobs of the base fit" in notes[1]


def test_a_target_out_of_reach_is_said_with_what_was_tried() -> None:
    rows = trace_of(*[Row(1, 1000.0)] * 100)
    (answer,), _ = answers_of(rows, "1x1", "50% of jobs start within 10 min")
    assert answer.nodes is None
    assert answer.sentence == "not reached with 8 nodes, 8 times as many: 8.0 %."
    assert answer.table["nodes"].to_list() == [1, 8]


def test_each_row_has_its_own_answer_and_what_its_limit_kills_is_said() -> None:
    rows = trace_of(Row(1, 4000.0), *[Row(1, 500.0)] * 3)
    target = "100% of jobs start within 20 min"
    answers, notes = answers_of(rows, "1x1", target, grid=Grid(time_limit="10m"))
    assert [(a.change, a.nodes) for a in answers] == [("as is", 2), ("limit 10m", 2)]
    assert notes[-1] == "'limit 10m' would kill 1 job, after 0.2 of their 1.1 GPU-hours."


def test_the_nodes_of_one_type_are_searched() -> None:
    rows = trace_of(*[Row(1, 1000.0, gpu_type="h100")] * 4)
    target = "100% of jobs start within 10 min"
    (answer,), _ = answers_of(rows, "1x1:a100+1x2:h100", target, gpu_type="h100")
    assert answer.nodes == 2
    assert answer.sentence.startswith("2 nodes of h100 (5 GPUs in all) reach 100.0 %")
    assert answer.table.filter(answer.table["nodes"] == 2)["gpus"].to_list() == [5]
    with pytest.raises(InputError, match=r"say of which type.*as in --type a100"):
        answers_of(rows, "1x1:a100+1x2:h100", target)


def test_jobs_of_another_type_that_miss_the_target_are_named() -> None:
    rows = trace_of(*[Row(1, 1000.0, gpu_type="h100")] * 4, *[Row(1, 1000.0, gpu_type="a100")] * 4)
    target = "100% of jobs start within 10 min"
    (answer,), _ = answers_of(
        rows, "1x1:a100+1x2:h100", target, gpu_type="h100", policy="fifo:bypass=skip"
    )
    assert answer.nodes is None
    assert "3 of the 3 jobs that miss it are for other GPU types" in answer.sentence


def test_the_number_of_processes_changes_nothing() -> None:
    rows = trace_of(*[Row(1, 1000.0, submit_s=100.0 * n) for n in range(60)])
    target = "90% of jobs start within 10 min"
    alone, two = (answers_of(rows, "2x1", target, processes=p) for p in (1, 2))
    assert alone[0][0].table.equals(two[0][0].table)
    assert alone[0][0].sentence == two[0][0].sentence


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("90% of jobs start within 10 min", Target("", 0.9, "time_to_start_s", 600.0)),
        ("99.5 % of 8-GPU jobs finish within 2 days", Target("", 0.995, "jct_s", 172800.0, 8)),
        (
            "50% of 1-gpu jobs in account vision wait at most 1.5h",
            Target("", 0.5, "wait_s", 5400.0, 1, "account", "vision"),
        ),
    ],
)
def test_a_target_is_one_sentence(text: str, target: Target) -> None:
    parsed = parse_target(text)
    assert (parsed.share, parsed.column, parsed.most_s) == (
        pytest.approx(target.share),
        target.column,
        target.most_s,
    )
    assert (parsed.gpus, parsed.by, parsed.name) == (target.gpus, target.by, target.name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90% of jobs",
        "most jobs start within 10 min",
        "0% of jobs start within 10 min",
        "101% of jobs start within 10 min",
        "90% of jobs start within 10",
        "90% of jobs start within 10 fortnights",
        "90% of jobs of bob start within 10 min",
        "90% of jobs start within 10 min or so",
    ],
)
def test_anything_else_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a target \(write .P% of \[N-GPU\] jobs"):
        parse_target(text)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("90% of 3-GPU jobs start within 1 min", "no job of the trace is meant"),
        ("90% of jobs in queue dav start within 1 min", "did you mean 'dev'"),
        ("90% of jobs in account dev start within 1 min", "its jobs name no account"),
    ],
)
def test_a_target_of_no_job_is_refused(target: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        answers_of(trace_of(Row(1, 10.0, queue="dev")), "1x1", target)


def searched(search: NodeSearch, enough: list[bool]) -> list[int]:
    """Runs a search to its end on what each number reaches; returns the numbers tried."""
    tried: list[int] = []
    while wanted := search.wanted():
        assert not set(wanted) & set(tried)
        tried += wanted
        search.reached.update({n: enough[n] for n in wanted})
    return tried


@given(start=st.integers(1, 60), least=st.integers(0, 3), data=st.data())
def test_more_nodes_being_better_the_search_finds_the_smallest_in_few_runs(
    start: int, least: int, data: st.DataObject
) -> None:
    most = 8 * start
    first = data.draw(st.integers(least, most + 1))
    search = NodeSearch(start, least, max(most, least))
    tried = searched(search, [n >= first for n in range(most + NEIGHBOURS + 4)])
    assert search.answer == (first if first <= max(most, least) else None)
    assert len(tried) <= 6 + 3 * 6 + 2 * NEIGHBOURS + CHECKS


@given(start=st.integers(1, 20), enough=st.lists(st.booleans(), min_size=200, max_size=200))
def test_otherwise_the_neighbours_below_the_answer_do_not_reach_it(
    start: int, enough: list[bool]
) -> None:
    search = NodeSearch(start, 1, 8 * start)
    searched(search, enough)
    if search.answer is not None:
        assert enough[search.answer]
        below = range(max(1, search.answer - NEIGHBOURS), search.answer)
        assert not any(enough[n] for n in below)
        assert all(n in search.reached for n in below)
        if search.answer <= CHECKS:
            assert not any(enough[1 : search.answer])


def test_an_answer_far_below_the_bisection_is_found_and_checked_in_turn() -> None:
    """Nine and ten reach it, and so do two: no bisection would look there."""
    search = NodeSearch(8, 1, 64)
    searched(search, [n == 2 or n >= 9 for n in range(80)])
    assert search.answer == 2
    assert search.checked == "no smaller number does (all tried)"
    large = NodeSearch(100, 1, 800)
    searched(large, [n >= 90 for n in range(900)])
    assert large.answer == 90
    assert large.checked.startswith("no smaller number does of ")


def test_runs_that_take_longer_than_the_target_are_said() -> None:
    rows = trace_of(Row(1, 4000.0), Row(1, 100.0))
    (answer,), _ = answers_of(rows, "1x1", "90% of jobs finish within 1 h")
    assert answer.nodes is None
    assert "only 50.0 % of these jobs run so short" in answer.sentence


def test_more_nodes_that_do_worse_are_named() -> None:
    search = NodeSearch(4, 1, 32)
    enough = [n in (3, 4) or n > 5 for n in range(40)]
    searched(search, enough)
    assert search.answer == 3
    assert search.reached[5] is False
