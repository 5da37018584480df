"""Comparisons are on equal terms, the same on any number of processes, and say what they mean."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from study_scene import CLUSTER, busy_trace

from builders import Row, trace_of
from dovetail.core.cluster import GIB, Cluster
from dovetail.core.errors import DovetailError, InputError
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.record.metrics import Window
from dovetail.record.result import COMPARISON_COLUMNS, Comparison
from dovetail.study.compare import Replication, compare
from dovetail.study.option_texts import DEFAULTS, OptionTexts, read_options
from dovetail.study.options import Options

OPTIONS = Options(Cluster.parse(CLUSTER))
MEASURED = ("decision_p99_ms", "wall_s")
one_process = partial(compare, processes=1)


def comparable(comparison: Comparison) -> dict[str, object]:
    """Returns all of a comparison but what a clock measured."""
    return {
        "table": comparison.table.to_dicts(),
        "bound": comparison.bound,
        "notes": comparison.notes,
        "jobs": {n: r.jobs.to_dicts() for n, r in comparison.results.items()},
        "spans": {n: len(r.spans) for n, r in comparison.results.items()},
        "summaries": {
            n: {k: v for k, v in r.summary.items() if k not in MEASURED}
            for n, r in comparison.results.items()
        },
    }


def test_the_number_of_processes_changes_nothing() -> None:
    policies = ["fifo", "srtf", "gittins"]
    alone, two = (
        compare(busy_trace(), policies, OPTIONS, processes=p, keep_spans=True) for p in (1, 2)
    )
    assert comparable(alone) == comparable(two)


def test_the_table_says_what_the_runs_say() -> None:
    found = one_process(busy_trace(), ["fifo", "srtf"], OPTIONS)
    assert dict(found.table.schema) == dict(COMPARISON_COLUMNS)
    assert list(found.results) == ["fifo:bypass=strict", "srtf:bypass=skip"]
    for row in found.table.to_dicts():
        run = found.results[row["policy"]]
        assert row["avg_jct_s"] == pytest.approx(run.jobs["jct_s"].mean())
        assert row["low"] < row["avg_jct_s"] < row["high"]
        assert row["x_bound"] == pytest.approx(row["avg_jct_s"] / found.bound["bound_s"])
        assert row["x_bound"] >= 1
    first, second = found.table["avg_jct_s"]
    assert found.table["ratio_to_baseline"].to_list() == pytest.approx([1.0, second / first])
    assert found.baseline == "fifo:bypass=strict"


def test_the_baseline_can_be_chosen() -> None:
    found = one_process(busy_trace(), ["fifo", "srtf"], OPTIONS, baseline="srtf")
    ratio = dict(found.table.select("policy", "ratio_to_baseline").iter_rows())
    assert ratio["srtf:bypass=skip"] == 1.0
    assert ratio["fifo:bypass=strict"] > 1.0


@pytest.mark.parametrize(
    ("policies", "baseline", "words"),
    [
        ([], "", "specify at least one"),
        (["fifo", "fifo:bypass=strict"], "", "named twice"),
        (["fifo"], "srtf", "not one of the compared"),
        (["fifo", "srft"], "", "did you mean 'srtf'"),
    ],
)
def test_policies_that_cannot_be_compared_are_refused(
    policies: list[str], baseline: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        one_process(busy_trace(), policies, OPTIONS, baseline=baseline)


def test_a_policy_that_lacks_knowledge_is_refused_before_anything_runs() -> None:
    told: list[float] = []
    with pytest.raises(InputError, match="needs to know: length"):
        compare(
            busy_trace(),
            ["fifo", "srtf"],
            replace(OPTIONS, forecast="unknown"),
            processes=2,
            progress=told.append,
        )
    assert not told


def test_an_error_in_a_worker_comes_back_as_it_was(tmp_path: Path) -> None:
    # The profile set is missed only when a worker builds the physics.
    options = replace(OPTIONS, profiles=(str(tmp_path / "gone.toml"),))
    trace = trace_of(Row(1, 5.0, model="pollux/bert"), Row(1, 5.0, submit_s=1.0))
    with pytest.raises(InputError, match=r"gone\.toml"):
        compare(trace, ["fifo", "srtf"], options, processes=2)


def test_spans_are_kept_of_the_best_and_the_baseline_alone() -> None:
    found = one_process(busy_trace(), ["fifo", "backfill", "srtf"], OPTIONS, keep_spans=True)
    best = found.ranked["policy"][0]
    kept = {name for name, run in found.results.items() if len(run.spans)}
    assert kept == {best, "fifo:bypass=strict"}
    without = one_process(busy_trace(), ["fifo", "srtf"], OPTIONS)
    assert not any(len(run.spans) for run in without.results.values())


def test_progress_grows_to_the_end() -> None:
    for processes in (1, 2):
        told: list[float] = []
        compare(busy_trace(), ["fifo", "srtf"], OPTIONS, processes=processes, progress=told.append)
        assert told == sorted(told)
        assert told[-1] == pytest.approx(1.0)


def test_only_jobs_of_the_window_count_in_means_and_intervals() -> None:
    options = replace(OPTIONS, window=Window(DAY_S, DAY_S))
    found = one_process(busy_trace(), ["fifo", "srtf"], options)
    submit = busy_trace().jobs.submit_s
    inside = (submit >= submit[0] + DAY_S) & (submit <= submit[-1] - DAY_S)
    for name, run in found.results.items():
        expected = run.jobs.filter(pl.Series(inside))["jct_s"].mean()
        row = found.table.filter(pl.col("policy") == name)
        assert row["avg_jct_s"][0] == pytest.approx(expected)
        assert row["avg_jct_s"][0] == pytest.approx(run.summary["avg_jct_s"])
    assert found.bound_s is None
    assert any("only the jobs of a window" in note for note in found.notes)


def test_windows_are_replicates_of_their_own() -> None:
    found = one_process(
        busy_trace(), ["fifo", "srtf"], OPTIONS, replication=Replication(4, 0.9 * DAY_S)
    )
    assert "4 windows" in found.notes[0]
    row = found.table.row(1, named=True)
    assert row["low"] < row["avg_jct_s"] < row["high"]
    # By hand: each window alone, from its own start.
    submit = busy_trace().jobs.submit_s
    flow = jobs = 0.0
    for start in np.linspace(submit[0], submit[-1] - 0.9 * DAY_S, 4):
        rows = np.flatnonzero((submit >= start) & (submit < start + 0.9 * DAY_S))
        part = one_process(busy_trace().take(rows), ["srtf"], OPTIONS)
        (run,) = part.results.values()
        flow, jobs = flow + run.jobs["jct_s"].sum(), jobs + len(rows)
    assert row["avg_jct_s"] == pytest.approx(flow / jobs)


def test_seeds_of_one_window_are_one_unit() -> None:
    noisy = replace(OPTIONS, forecast="noisy:1")
    found = one_process(
        busy_trace(120, 2.0), ["srtf"], noisy, replication=Replication(2, 0.8 * DAY_S, seeds=3)
    )
    assert found.notes[0] == "No intervals: 2 replicates are too few for intervals."
    assert found.table["low"].to_list() == [None]


def test_seeds_alone_replicate_what_is_drawn_and_say_so() -> None:
    noisy = replace(OPTIONS, forecast="noisy:1")
    found = one_process(
        busy_trace(120, 2.0), ["fifo", "srtf"], noisy, replication=Replication(seeds=4)
    )
    assert "seeds on the same jobs" in found.notes[0]
    fifo, srtf = found.table.to_dicts()
    assert fifo["low"] == fifo["high"]  # first come, first served knows no lengths
    assert srtf["low"] < srtf["high"]


@pytest.mark.parametrize(
    ("replication", "words"),
    [
        (Replication(3, 2 * DAY_S), "would overlap"),
        (Replication(seeds=3), "nothing in this study is drawn"),
    ],
)
def test_replicates_that_would_deceive_are_refused(replication: Replication, words: str) -> None:
    with pytest.raises(InputError, match=words):
        one_process(busy_trace(), ["fifo"], OPTIONS, replication=replication)


def test_what_is_assigned_by_seed_is_assigned_anew_in_each_replicate() -> None:
    seen: list[int] = []

    def assign(trace: Trace, seed: int) -> Trace:
        seen.append(seed)
        return trace

    one_process(
        busy_trace(120, 2.0),
        ["fifo"],
        replace(OPTIONS, seed=7),
        replication=Replication(seeds=3),
        assign=assign,
    )
    assert seen == [7, 7, 8, 9]


def test_left_out_jobs_are_said() -> None:
    trace = trace_of(Row(1, 5.0), Row(64, 5.0, submit_s=1.0))
    found = one_process(trace, ["fifo"], OPTIONS)
    assert "1 jobs can never fit this cluster and were left out." in found.notes


def test_a_worker_killed_from_outside_is_told_in_one_sentence(tmp_path: Path) -> None:
    deadly = tmp_path / "deadly.py"
    deadly.write_text(
        "import os\n"
        "from multiprocessing import parent_process\n"
        "from dovetail.policies.fifo import Fifo\n"
        "class Deadly(Fifo):\n"
        "    name = 'deadly'\n"
        "    def decide(self, view, memory):\n"
        "        if parent_process() is not None:\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return super().decide(view, memory)\n"
    )
    with pytest.raises(DovetailError, match="fewer --processes"):
        compare(busy_trace(120, 2.0), [f"{deadly}:Deadly", "fifo"], OPTIONS, processes=2)


def test_powers_that_no_owner_allows_are_said_to_be_idle() -> None:
    trace = trace_of(Row(1, 100.0), Row(2, 50.0, 10.0))
    text = " ".join(one_process(trace, ["srtf", "max-min", "sjf-ffs"], OPTIONS).notes)
    assert "No job is elastic, so max-min could resize none (--adopt elastic:1)." in text
    assert "No job is shareable, so sjf-ffs could share none (--adopt shareable:1)." in text
    adopted = replace(OPTIONS, adopt=(("elastic", 1.0), ("shareable", 1.0)))
    text = " ".join(one_process(trace, ["max-min", "sjf-ffs"], adopted).notes)
    assert "No job is" not in text


def test_interleaving_that_cannot_happen_is_said() -> None:
    trace = trace_of(Row(1, 100.0), Row(2, 50.0, 10.0))
    text = " ".join(one_process(trace, ["fifo", "muri-s"], OPTIONS).notes)
    assert "No job is shareable, so muri-s could interleave none (--adopt shareable:1)." in text
    adopted = replace(OPTIONS, adopt=(("shareable", 1.0),))
    text = " ".join(one_process(trace, ["fifo", "muri-s"], adopted).notes)
    assert "No job's stages are known, so muri-s could interleave none" in text
    assert "--assign-models" in text
    known = trace_of(Row(1, 100.0, model="muri/vgg16"), Row(1, 50.0, 10.0, model="muri/a2c"))
    text = " ".join(one_process(known, ["fifo", "muri-s"], adopted).notes)
    assert "could interleave none" not in text


def test_an_assumed_gpu_memory_that_decides_who_shares_is_reported() -> None:
    known = trace_of(Row(1, 100.0, model="muri/vgg16"), Row(1, 50.0, 10.0, model="muri/a2c"))
    sentence = "Jobs share a GPU only if they fit its 16 GiB, which is the default"

    def notes_on(cluster: str, *policies: str) -> str:
        words: OptionTexts = {**DEFAULTS, "cluster": cluster, "adopt": "shareable:1"}
        return " ".join(one_process(known, list(policies), read_options(words)).notes)

    assert sentence in notes_on("2x4", "fifo", "muri-s")
    assert sentence not in notes_on("2x4", "fifo", "srtf")
    assert sentence not in notes_on("2x4/32G", "fifo", "muri-s")
    assert sentence not in notes_on("2x4:v100", "fifo", "muri-s")


def test_the_type_of_a_gpu_gives_its_memory() -> None:
    words: OptionTexts = {**DEFAULTS, "cluster": "1x1:a100+1x1:a100/80G+1x1:unheard-of"}
    groups = read_options(words).cluster.groups
    assert [g.gpu_memory_bytes / GIB for g in groups] == [40, 80, 16]


def test_models_that_nobody_knows_are_told() -> None:
    trace = trace_of(Row(1, 100.0, model="vgg61"), Row(1, 50.0, model="muri/vgg16"), Row(1, 9.0))
    text = " ".join(one_process(trace, ["fifo", "srtf"], OPTIONS).notes)
    assert "1 jobs name a model that is not known, and scale linearly" in text
    for quiet, options in (
        (trace_of(Row(1, 9.0)), OPTIONS),
        (trace, replace(OPTIONS, physics="linear")),
    ):
        assert "not known" not in " ".join(one_process(quiet, ["fifo", "srtf"], options).notes)


def test_a_gain_of_sharing_is_explained() -> None:
    jobs = [Row(1, 100.0, shareable=True), Row(1, 100.0, shareable=True)]
    one_gpu = Options(Cluster.parse("1x1"), interference=1.25)
    found = one_process(trace_of(*jobs), ["sjf-ffs"], one_gpu)
    # Two jobs of 100 s in 125 s on one GPU: 75 GPU-seconds of work were had for nothing.
    assert found.results["sjf-ffs:priority=time"].gpu_seconds["slowdown"] == pytest.approx(-75)
    assert any("did more with less" in note for note in found.notes)
