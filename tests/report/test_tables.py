"""The words and the terminal tables: readable at 80 columns, honest about what is unknown."""

from dataclasses import replace

import polars as pl
import pytest
from result_scene import comparison_of, empty_result, pair, run_result, with_record
from rich.console import Console

import dovetail.policies
from dovetail.core.policy import parse_policy, spell
from dovetail.report.tables import comparison_view, meanings, ranking, run_view, spending
from dovetail.report.words import (
    bounds_text,
    comparison_sentence,
    count,
    duration,
    factor,
    percent,
    run_sentence,
    short_names,
    size_order,
    spelled_words,
)

assert dovetail.policies


def printed(view, width=80):
    console = Console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def named(names, avg_s, baseline, **more):
    """Returns a comparison of runs that differ in name and mean only."""
    run = run_result(20)
    results = {
        n: replace(
            run,
            manifest={**run.manifest, "policy": n},
            summary={**run.summary, **more, "avg_jct_s": a},
        )
        for n, a in zip(names, avg_s, strict=True)
    }
    return comparison_of(results, baseline, bound_s=min(avg_s) / 2)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "never"),
        (0.0, "0 s"),
        (0.0421, "42.1 ms"),
        (41.0, "41 s"),
        (59.99, "1 min"),
        (3598.9, "1 h"),
        (11520.0, "3.2 h"),
        (129600.0, "36 h"),
        (172800.0, "2 d"),
        (-90.0, "-1.5 min"),
        (1234 * 86400.0, "1,230 d"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds, words):
    assert duration(seconds) == words


def test_ratios_shares_and_counts_in_words():
    assert [factor(x) for x in (1.3, 0.474, 123.4, None)] == ["1.30x", "0.47x", "123x", "–"]
    assert [percent(x) for x in (0.714, 0.002, 1.0, 0.0)] == ["71 %", "0.2 %", "100 %", "0 %"]
    assert [percent(x) for x in (-0.2, -0.004, -0.0004)] == ["-20 %", "-0.4 %", "0 %"]
    assert [count(x) for x in (1234.0, 2.5, None)] == ["1,234", "2.5", "–"]


def test_size_classes_are_ordered_by_size():
    assert sorted(["33+", "5-8", "1", ">8", "2-4", "9-32"], key=size_order) == [
        "1",
        "2-4",
        "5-8",
        ">8",
        "9-32",
        "33+",
    ]


def test_short_names_stay_apart():
    names = [
        "fifo",
        "tiresias:thresholds=3250/7200,bypass=skip",
        "afs:variant=lll",
        "afs:variant=p",
    ]
    assert list(short_names(names).values()) == [
        "fifo",
        "tiresias",
        "afs:variant=lll",
        "afs:variant=p",
    ]
    long = ["tiresias:thresholds=3250/7200", "tiresias:thresholds=100/200"]
    assert list(short_names(long).values()) == ["tiresias #1", "tiresias #2"]
    assert short_names(["my/own_policy.py:Mine"]) == {"my/own_policy.py:Mine": "Mine"}


def test_the_sentence_names_the_best_its_gain_its_bound_and_who_pays():
    comparison = named(["fifo", "srtf"], [2000.0, 1000.0], "fifo")
    jobs = comparison.results["fifo"].jobs.head(2).with_columns(size_class=pl.Series(["1", ">8"]))
    results = {
        n: replace(r, jobs=jobs.with_columns(wait_s=pl.Series([10.0, wait_s])))
        for (n, r), wait_s in zip(comparison.results.items(), (100.0, 180.0), strict=True)
    }
    assert comparison_sentence(replace(comparison, results=results)) == (
        "srtf finishes the mean job 2.00x sooner than fifo (95 % interval 1.82x to 2.22x); "
        "2.00x the bound no schedule of its kind can beat; the biggest jobs (>8 GPUs, 1 job) wait "
        "1.80x longer than under fifo."
    )


def test_the_sentence_does_not_call_noise_a_difference():
    comparison = named(["fifo", "sjf"], [1000.0, 950.0], "fifo")
    assert comparison_sentence(comparison).startswith("Nothing clearly beats fifo: sjf finishes")
    same = named(["fifo", "sjf"], [1000.0, 995.0], "fifo")
    assert "about the same time" in comparison_sentence(same)


def test_the_sentence_says_so_when_the_baseline_wins():
    comparison = named(["srtf", "fifo"], [1000.0, 3000.0], "srtf")
    assert comparison_sentence(comparison).startswith(
        "srtf finishes the mean job 3.00x sooner than fifo; "
    )


def test_sentences_about_nothing_are_still_sentences():
    assert run_sentence(empty_result()) == "fifo: no job finished."
    empty = comparison_of({"fifo": empty_result()}, "fifo")
    assert comparison_sentence(empty) == "No policy finished a job."


def test_the_run_sentence_counts_what_did_not_finish():
    run = run_result(50)
    run = replace(
        run, summary={**run.summary, "finished": 48, "avg_jct_s": 11520.0, "x_bound": 1.3}
    )
    assert run_sentence(run).startswith(
        "fifo finishes 48 of 50 jobs; the mean job takes 3.2 h, of which "
    )
    assert "1.30x the shortest any schedule could reach" in run_sentence(run)


def test_the_ranking_fits_80_columns_one_line_a_policy():
    names = [
        "fifo",
        "tiresias:thresholds=3250/7200",
        "tiresias:thresholds=1/2",
        "a-very-long-policy-name",
    ]
    comparison = named(
        names,
        [123456789.0, 59.4 * 3600, 1e5, 2e5],
        "fifo",
        preemptions=1234567,
        p99_jct_s=999 * 86400.0,
    )
    lines = printed(ranking(comparison)).rstrip().splitlines()
    body = [line for line in lines if line.strip() and "─" not in line]
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert len(body) == 1 + len(names)
    assert "…" not in "".join(body[1:]).replace("a-very-long-pol…", "")
    assert body[0].split() == [
        "policy",
        "mean",
        "95",
        "%",
        "vs",
        "fifo",
        "x",
        "bound",
        "99",
        "%",
        "wait",
        "GPUs",
        "preempt",
    ]
    assert body[1].split()[:2] == ["tiresias", "#2"]  # 1e5 s, the shortest mean, comes first


def test_the_whole_view_fits_80_columns_and_names_every_policy_in_full():
    name = "tiresias:thresholds=3250/7200,bypass=skip"
    text = printed(comparison_view(named(["fifo", name], [2e5, 1e5], "fifo")))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert f"tiresias is {name}" in text
    assert "Bound on the mean JCT" in text


def test_waits_by_account_are_those_of_the_accounts_with_most_jobs():
    comparison = with_record(pair(400))
    groups = [f"lab{i}" for i in range(8)]
    by_account = pl.DataFrame(
        {"group": groups, "jobs": list(range(8, 0, -1)), "avg_wait_s": [60.0 * i for i in range(8)]}
    )
    results = {
        name: replace(result, splits={**result.splits, "account": by_account})
        for name, result in comparison.results.items()
    }
    text = printed(comparison_view(replace(comparison, results=results)))
    title = next(line for line in text.splitlines() if line.startswith("wait by account"))
    assert title.split() == ["wait", "by", "account", "(6", "of", "8)", *groups[:6]]
    rows = [line.split() for line in text.splitlines() if "0 s" in line and "5 min" in line]
    assert [row[-2:] for row in rows] == [["5", "min"]] * len(results)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "wait by account" not in printed(comparison_view(pair(400)))


def test_a_policy_of_many_parameters_is_told_by_those_that_differ():
    whole = spell(parse_policy("slurm:bf-interval=60"))
    said = spelled_words("slurm", whole)
    assert said == (
        "slurm is slurm:bf-interval=60, otherwise with its defaults (dovetail policies slurm)"
    )
    assert spelled_words("slurm", spell(parse_policy("slurm"))) == (
        "slurm has its default parameters (dovetail policies slurm)"
    )
    inside = spell(parse_policy("tenancy:inner=slurm:bf-interval=60;bf-window=9,guard-s=7"))
    assert spelled_words("tenancy", inside) == (
        "tenancy is tenancy:inner=slurm:bf-interval=60;bf-window=9,guard-s=7, "
        "otherwise with its defaults (dovetail policies tenancy)"
    )
    mine = "my/file.py:Mine" + "x" * 100
    assert spelled_words("Mine", mine) == f"Mine is {mine}"


def test_brackets_in_names_are_shown_not_obeyed():
    text = printed(comparison_view(named(["fifo", "[red]sjf[/]"], [2e5, 1e5], "fifo")))
    assert "[red]sjf[/]" in text


def test_a_run_prints_its_numbers_and_an_empty_one_does_not_fail():
    text = printed(run_view(run_result(100)))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "mean JCT" in text and "useful work" in text and "GPUs asked for" in text
    assert "no job finished" in printed(run_view(empty_result()))
    assert "No policy finished" in printed(
        comparison_view(comparison_of({"fifo": empty_result()}, "fifo"))
    )


def test_the_example_pair_ranks_shortest_first():
    comparison = pair(200)
    assert comparison.ranked["policy"].to_list() == ["sjf", "fifo"]


def test_the_gpu_time_of_each_policy_is_shown_in_shares() -> None:
    comparison = named(["fifo", "srtf"], [2000.0, 1000.0], "fifo")
    spent = {"useful": 60.0, "slowdown": -10.0, "switching": 0.0, "idle_waiting": 50.0}
    results = {n: replace(r, gpu_seconds=spent) for n, r in comparison.results.items()}
    table = spending(replace(comparison, results=results))
    heads = [str(column.header) for column in table.columns]
    assert heads == ["GPU-time", "useful", "slowed", "idle, jobs wait"]
    assert [[str(cell) for cell in column.cells] for column in table.columns] == [
        ["srtf", "fifo"],
        ["60 %"] * 2,
        ["-10 %"] * 2,
        ["50 %"] * 2,
    ]


def test_each_set_of_powers_has_its_bound_in_words() -> None:
    comparison = named(["fifo", "srtf"], [2000.0, 1000.0], "fifo")
    every = {"exclusive, rigid": {"a": 60.0, "b": 3600.0}, "exclusive, elastic": {"a": 1800.0}}
    said = bounds_text(replace(comparison, bound={"bound_s": 3600.0, "all": every}))
    assert said == "1 h (exclusive, rigid), 30 min (exclusive, elastic)"
    one = {"bound_s": 3600.0, "kind": "span; exclusive, rigid", "all": {"exclusive, rigid": {}}}
    assert bounds_text(replace(comparison, bound=one)) == "1 h (span; exclusive, rigid)"


def test_the_columns_are_said_under_the_table_and_restarts_of_the_log_too():
    comparison = pair(60)
    assert "job completion time (JCT), from submission to end" in meanings(comparison)
    assert "failed nodes" not in meanings(comparison)
    assert meanings(with_record(comparison)).endswith("of the log also by failed nodes.")
