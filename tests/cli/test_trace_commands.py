"""`dovetail trace` from the outside: files in, files out, one JSON object, clear refusals."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_runner import Shell

from dovetail.cli.trace import trace
from dovetail.core.errors import InputError
from dovetail.traces.canonical import read_trace

ITP = "job_id,submission_time,duration,num_gpu\n"


def run(*words: object) -> Result:
    return CliRunner().invoke(trace, [str(w) for w in words], catch_exceptions=False)


def refused(*words: object) -> str:
    with pytest.raises(InputError) as caught:
        run(*words)
    return str(caught.value)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "c1.csv", tmp_path / "c2.csv"]
    paths[0].write_text(ITP + "a,0,3600,1\nb,600,60,0\n")
    paths[1].write_text(ITP + "c,86400,7200,4\n")
    return paths


def test_import_writes_one_trace_and_tells_what_it_left_out(
    logs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "all.csv"
    done = run("import", *logs, "-o", out)
    assert done.exit_code == 0
    assert done.output == (f"{out}: 2 jobs (itp)\n  read: 3\n  rejected: no GPU: 1\n  usable: 2\n")
    assert read_trace(out).jobs.queue.texts() == ["c1", "c2"]


def test_import_apart_writes_a_folder(logs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "apart"
    told = json.loads(run("import", *logs, "-o", out, "--apart", "--json").output)
    assert told["source"] == "itp"
    assert [Path(t["path"]).name for t in told["traces"]] == ["c1.csv", "c2.csv"]
    assert [t["jobs"] for t in told["traces"]] == [1, 1]
    assert read_trace(out / "c1.csv").jobs.job_id == ("a",)


def test_virtual_clusters_whose_names_make_the_same_file_name_stay_apart(tmp_path: Path) -> None:
    log = tmp_path / "p.csv"
    log.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-02 00:00:10,60,2,120,a/b\n2017-10-02 00:00:20,60,1,60,a b\n"
    )
    out = tmp_path / "vcs"
    run("import", log, "--apart", "-o", out)
    assert sorted(p.name for p in out.iterdir()) == ["a_b-1.csv", "a_b.csv"]
    assert "already exists" in refused("import", log, "--apart", "-o", out)


def test_import_takes_the_zoo_s_step_times_for_afs(tmp_path: Path) -> None:
    path = tmp_path / "trace_2869ce.csv"
    path.write_text(
        "app_id,submit_time,service,num_jobs,sleep_time,model_name\n"
        "0,0.0,3184686.795439648,4,0.0,TransformerModel256\n"
    )
    run("import", path, "-o", tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv").duration_s.tolist() == [927468.0]


def test_import_needs_step_times_for_gavel_and_takes_them_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text("LM (batch size 10)\tx\t-n\t1\t400\t6.0\t1\n")
    assert "supply step times" in refused("import", path, "-o", tmp_path / "t.csv")
    steps = tmp_path / "steps.json"
    steps.write_text('{"v100": {"(\'LM (batch size 10)\', 1)": {"null": 4.0}}}')
    run("import", path, "-o", tmp_path / "t.csv", "--step-times", steps)
    assert read_trace(tmp_path / "t.csv").duration_s.tolist() == [100.0]


def test_describe_speaks_to_people_and_to_programs(logs: list[Path], tmp_path: Path) -> None:
    run("import", *logs, "-o", tmp_path / "t.csv")
    text = run("describe", tmp_path / "t.csv", "--cluster", "1x2", "--load", "0.5").output
    assert "t: 2 jobs in 1.0 days" in text
    assert "Offered load on 2 GPUs: mean 0.19" in text
    assert "Load 0.5 is offered on 1 GPUs" in text
    done = run("describe", tmp_path / "t.csv", "--plots", tmp_path / "figures", "--json")
    told = json.loads(done.output)
    assert told["gpu_hours"] == 9.0
    assert [Path(p).exists() for p in told["plots"]] == [True, True]


def test_describe_reads_logs_that_were_not_imported(logs: list[Path]) -> None:
    assert json.loads(run("describe", logs[0], "--json").output)["jobs"] == 1


def test_generate_convert_slice_and_scale_follow_one_another(tmp_path: Path) -> None:
    month, parquet, week, busy = (
        tmp_path / name for name in ("m.csv", "m.parquet", "w.csv", "b.csv.gz")
    )
    run("generate", "philly-like", "--jobs", 2000, "--seed", 3, "--models", "afs", "-o", month)
    made = read_trace(month)
    assert len(made) == 2000
    assert all(name.startswith("afs/") for name in made.jobs.model.texts())
    run("convert", month, parquet)
    assert read_trace(parquet).duration_s.tolist() == made.duration_s.tolist()
    cut = run("slice", parquet, "--busiest-days", 7, "--queue", "6214e9", "--jobs", 200, "-o", week)
    part = read_trace(week)
    assert cut.output == f"{week}: {len(part)} of 2,000 jobs of {parquet}\n"
    assert set(part.jobs.queue.texts()) == {"6214e9"}
    assert part.jobs.submit_s.max() <= 7 * 86400
    done = run(
        *("scale", week, "--cluster", "2x8", "--load", 0.9, "--elastic", 0.5, "-o", busy, "--json")
    )
    assert json.loads(done.output)["jobs"] == json.loads(done.output)["source_jobs"] == len(part)
    assert 0.3 < read_trace(busy).jobs.elastic.mean() < 0.7


def test_refusals_say_what_to_do(tmp_path: Path, logs: list[Path]) -> None:
    out = tmp_path / "o.csv"
    assert "did you mean 'poisson'" in refused("generate", "poison", "-o", out)
    assert "needs --cluster" in refused("scale", logs[0], "--load", 1, "-o", out)
    assert "the selection contains no jobs" in refused("slice", logs[0], "--from-day", 9, "-o", out)
    assert "expected NODESxGPUS" in refused("describe", logs[0], "--cluster", "big")
    assert "is not NAME:GPUS" in refused("scale", logs[0], "--models", "a:x", "-o", out)
    assert "is not a family of the zoo" in refused("scale", logs[0], "--models", "asf", "-o", out)
    assert not out.exists()


@pytest.mark.parametrize("command", ["import", "describe", "generate", "convert", "slice", "scale"])
def test_every_command_has_help_with_an_example_and_json(command: str) -> None:
    text = run(command, "--help").output
    assert "Example:" in text
    assert f"dovetail trace {command}" in text
    assert "--json" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["scale", "--cluster", "2x2"], "--cluster: needs --load"),
        (["scale", "--load", "0.9"], "--load: needs --cluster"),
        (["scale", "--compress", "1e-30"], "submissions would be later than"),
        (["scale", "--models", "afs:8"], "'afs': is not in the zoo"),
        (["import", "--work", "duration"], "does not apply to the format 'canonical'"),
    ],
)
def test_words_that_would_be_ignored_or_break_the_file_are_refused(
    words: list[str], expected: str, shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("job_id,submit_s,gpus,duration_s\n1,0,1,5\n2,9,1,5\n")
    out = tmp_path / "out.csv"
    command, *more = words
    assert expected in shell.refused("trace", command, file, *more, "-o", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("job_id;submit_s;gpus;duration_s\n1;2;3;4\n", "columns separated by semicolons"),
        ("job_id,submit_s,gpus\n1,2,3\n", "line 1: lacks the column duration_s"),
    ],
)
def test_a_file_that_is_nearly_a_trace_is_told_what_it_lacks(
    text: str, expected: str, shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    assert expected in shell.refused("simulate", file, "-p", "fifo")


def test_run_times_of_three_jobs_are_forecast_though_none_ended_before(
    shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("job_id,submit_s,gpus,duration_s\n1,0,1,10\n2,5,1,20\n3,9,2,30\n")
    errors = json.loads(run("forecast", file, "--json").output)["forecasts"]
    assert {one["method"] for one in errors} >= {"boosted", "median", "mean", "forest"}
    assert all(one["errors"]["jobs"] == 1 for one in errors)
    file.write_text("job_id,submit_s,gpus,duration_s\n1,0,1,10\n")
    assert "too few to learn from some" in shell.refused("trace", "forecast", file)


def test_a_loss_above_one_per_cent_is_the_first_line(shell: Shell, tmp_path: Path) -> None:
    log, rejects = tmp_path / "log.csv", tmp_path / "rejects.csv"
    rows = ["a,0,1,60", "b,1,1,-5", "c,2,0,60", "d,3,4,60", "a,4,2,60"]
    log.write_text("\n".join(("job_id,submit_s,gpus,duration_s", *rows)) + "\n")
    words = ("trace", "import", log, "-o", tmp_path / "out.csv")
    said = shell.ok(*words, "--rejects", rejects)
    first, second = said.out.splitlines()[:2]
    # The job without a GPU is no loss; the one run twice took 120 of 420 GPU-seconds.
    assert first.startswith("note: left out 2 of 4 jobs (50.0%) with 28.6% of the GPU-hours: ")
    assert "1 duplicate id" in first and "1 negative duration" in first and "no GPU" not in first
    assert second.endswith("2 jobs (canonical)")
    assert rejects.read_text().splitlines() == [
        "file,line,kind,reason,text",
        f'{log},3,lost job,negative duration,"b,1,1,-5"',
        f'{log},6,lost job,duplicate id,"a,4,2,60"',
        f'{log},4,no GPU job,no GPU,"c,2,0,60"',
    ]
    assert shell.ok(*words, "--json").json["notes"]


def test_rejects_of_several_files_name_each_file(shell: Shell, tmp_path: Path) -> None:
    header = "timestamp,duration,num_gpus,gpu_time,cluster"
    files = [tmp_path / f"{name}.csv" for name in ("one", "two")]
    for path, gpus in zip(files, (1, 0), strict=True):
        # A quoted value may hold a line end, so a row need not be a line.
        rows = ['2017-10-02 00:00:10,60.0,2,120.0,"b\nc"', f"2017-10-02 00:00:20,60.0,{gpus},0,b"]
        path.write_text("\n".join((header, *rows)) + "\n")
    for apart in ((), ("--apart",)):
        rejects = tmp_path / "rejects.csv"
        out = tmp_path / ("folder" if apart else "all.csv")
        shell.ok("trace", "import", *files, *apart, "--rejects", rejects, "-o", out)
        told = rejects.read_text().splitlines()[1:]
        assert told == [f'{files[1]},4,no GPU job,no GPU,"2017-10-02 00:00:20,60.0,0,0,b"']
