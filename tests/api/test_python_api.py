"""`import dovetail as dt`: the same words as the command line, data frames out."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import dovetail as dt
from dovetail.core.policy import registered
from dovetail.physics.zoo.models import zoo
from dovetail.record.result import COMPARISON_COLUMNS, JOB_COLUMNS, SERIES_COLUMNS


@pytest.fixture(scope="module")
def trace() -> dt.Trace:
    return dt.generate("philly-like", jobs=200, days=2, cluster="4x4", load=0.9, seed=1)


def test_everything_offered_is_there_and_documented() -> None:
    for name in dt.__all__:
        assert getattr(dt, name) is not None
    assert set(dt.__all__) <= set(dir(dt))
    for name in set(dt.__all__) - {"__version__"}:
        assert getattr(dt, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        dt.simulat  # type: ignore[attr-defined] # noqa: B018


def test_importing_it_imports_nothing_else() -> None:
    script = "import sys, dovetail; assert not {'numpy', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_run_gives_frames(trace: dt.Trace) -> None:
    run = dt.simulate(trace, "srtf", cluster="4x4")
    assert dict(run.jobs.schema) == dict(JOB_COLUMNS)
    assert dict(run.series.schema) == dict(SERIES_COLUMNS)
    assert run.summary["avg_jct_s"] == pytest.approx(run.jobs["jct_s"].mean())
    assert run.summary["x_bound"] >= 1  # type: ignore[operator]
    assert len(run.spans) >= 200
    assert run.table.shape[0] == 1
    assert run.table["policy"][0] == "srtf:bypass=skip"
    assert "srtf finishes all 200 jobs" in repr(run)
    assert run._repr_html_().startswith("<p>srtf finishes all 200 jobs")


def test_options_are_the_words_of_the_command_line(trace: dt.Trace) -> None:
    with_cost, free = (
        dt.simulate(trace, "srtf", cluster="4x4", switching=s, judge=False, spans=False)
        for s in ("restart:600", "none")
    )
    assert with_cost.summary["avg_jct_s"] > free.summary["avg_jct_s"]  # type: ignore[operator]
    assert len(free.spans) == 0
    assert free.summary.get("x_bound") is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cluster": "4y4"}, "NODESxGPUS"),
        ({"clutser": "4x4"}, "did you mean 'cluster'"),
        ({"placement": "strct"}, "did you mean 'strict'"),
        ({"seed": -1}, "0 or more"),
        ({"warm_up_s": 1e9}, "no job is left"),
    ],
)
def test_words_that_mean_nothing_are_refused(
    given: dict[str, object], words: str, trace: dt.Trace
) -> None:
    with pytest.raises(dt.InputError, match=words):
        dt.simulate(trace, "fifo", **given)  # type: ignore[arg-type]


def test_a_comparison_ranks_and_keeps_every_run(trace: dt.Trace) -> None:
    ranking = dt.compare(trace, ["fifo", "srtf"], cluster="4x4", forecast="known", processes=1)
    assert dict(ranking.ranked.schema) == dict(COMPARISON_COLUMNS)
    assert ranking.ranked["policy"].to_list() == ["srtf:bypass=skip", "fifo:bypass=strict"]
    fifo = ranking.runs["fifo:bypass=strict"]
    assert isinstance(fifo, dt.Run)
    alone = dt.simulate(trace, "fifo", cluster="4x4")
    assert fifo.jobs.equals(alone.jobs)
    assert "srtf finishes the mean job" in " ".join(repr(ranking).split())
    assert "<table" in ranking._repr_html_()


def test_results_are_saved_as_the_commands_do(trace: dt.Trace, tmp_path: Path) -> None:
    run = dt.simulate(trace, "fifo", cluster="4x4", judge=False)
    folder = run.save(tmp_path / "run")
    assert (folder / "report.html").is_file()
    ranking = dt.compare(trace, ["fifo", "sjf"], cluster="4x4", processes=1)
    assert (ranking.save(tmp_path / "both") / "comparison.csv").is_file()
    with pytest.raises(dt.InputError, match="exists already"):
        run.save(tmp_path / "run")


def test_traces_come_from_files_and_go_back(trace: dt.Trace, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    dt.write_trace(trace, file)
    again = dt.read_trace(file)
    assert dt.to_frame(again).equals(dt.to_frame(trace))
    from_file, in_hand = (
        dt.simulate(source, "fifo", cluster="4x4", judge=False) for source in (str(file), trace)
    )
    assert from_file.jobs.equals(in_hand.jobs)
    twin = tmp_path / "twin.csv"
    dt.write_trace(trace, twin)
    both = dt.import_trace(file, twin)
    assert len(both) == 2 * len(trace)
    with pytest.raises(dt.InputError, match="no such file"):
        dt.read_trace(tmp_path / "gone.csv")


def test_a_bound_says_which_and_for_whom(trace: dt.Trace) -> None:
    rigid = dt.bound(trace, cluster="4x4")
    assert rigid.table["mean_jct_s"][0] == rigid.mean_jct_s
    assert rigid.table["bound"][0] == rigid.by
    assert rigid.powers == "exclusive, rigid"
    assert "<table" in rigid._repr_html_()
    with pytest.raises(dt.InputError, match="by the clock"):
        dt.bound(trace, cluster="4x4", cancelled="clock")


def test_a_log_replays_to_a_frame_of_differences(trace: dt.Trace, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    dt.simulate(trace, "srtf", cluster="4x4", log=log, judge=False)
    assert dt.replay(log).is_empty()
    other = dt.replay(log, "fifo")
    assert other.columns == ["t_s", "job_id", "recorded", "now", "why"]
    assert len(other) > 0


def test_policies_and_models_are_frames() -> None:
    assert dt.list_policies()["policy"].to_list() == list(registered())
    models = dt.list_models()
    assert set(models["model"]) == set(zoo())
    assert models.filter(pl.col("iteration_s") <= 0).is_empty()


def test_an_unguarded_script_may_compare_on_all_cores(tmp_path: Path) -> None:
    script = tmp_path / "study.py"
    script.write_text(
        "import dovetail as dt\n"
        "print('once')\n"
        "trace = dt.generate(jobs=60, days=1, cluster='2x4', load=0.8)\n"
        "found = dt.compare(trace, ['fifo', 'tiresias'], cluster='2x4', processes=2)\n"
        "print(len(found.ranked))\n"
    )
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert said.stdout == "once\n2\n"


def test_a_policy_of_the_notebook_itself_is_compared_in_place(trace: dt.Trace) -> None:
    from dovetail.core.policy import register, registered
    from dovetail.policies.fifo import Fifo

    before = registered()

    class Mine(Fifo):
        """First come, first served, under another name."""

    register("mine-of-the-notebook")(Mine)
    try:
        found = dt.compare(trace, ["fifo", "mine-of-the-notebook"], cluster="4x4", processes=2)
        first, second = found.ranked["avg_jct_s"].to_list()
        assert first == second
    finally:
        from dovetail.core import policy

        policy._registry.pop("mine-of-the-notebook")
    assert registered() == before
