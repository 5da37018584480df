"""What an import did to a log is known wherever the canonical file is used later."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_runner import Shell

from sacct_log import log_lines, logged_jobs

COMPARED = ("--policies", "backfill,sjf", "--cluster", "9x4:a100+4x4:v100", "--processes", "1")


def in_another_process(*words: object) -> str:
    command = [sys.executable, "-m", "dovetail", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.txt"
    path.write_text("\n".join(log_lines(logged_jobs(150))) + "\n")
    return path


def lossy(log: Path, folder: Path) -> Path:
    """Writes the log without the submission of 3 in 100 jobs."""
    header, *lines = log.read_text().splitlines()
    at = header.split("|").index("Submit")
    for i in range(0, len(lines), 33):
        values = lines[i].split("|")
        if len(values) == len(header.split("|")):
            values[at] = "Unknown"
        lines[i] = "|".join(values)
    path = folder / "lossy.txt"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def imported(log: Path, month: Path, shell: Shell) -> dict[str, int]:
    """Imports the log, and returns what became of its rows."""
    words = ("trace", "import", log, "--timezone", "Europe/Berlin", "-o", month, "--json")
    counts: dict[str, int] = shell.ok(*words).json["traces"][0]["counts"]
    assert counts["read"] > counts["usable"]
    return counts


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_whoever_reads_a_trace_knows_what_the_import_did(
    log: Path, tmp_path: Path, kind: str, shell: Shell
) -> None:
    month = tmp_path / f"month.{kind}"
    counts = imported(log, month, shell)
    assert shell.ok("trace", "describe", month, "--json").json["counts"] == counts


def test_a_comparison_in_another_process_knows_what_the_import_did(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    month = tmp_path / "month.csv"
    counts = imported(log, month, shell)
    said = in_another_process("compare", month, *COMPARED, "-o", tmp_path / "report")
    words = " ".join(said.split())
    assert f"Import of log.txt (slurm): {counts['read']:,} rows; {counts['usable']:,} jobs" in words
    page = (tmp_path / "report" / "report.html").read_text()
    assert "rows of log.txt (slurm)" in page
    for what, number in counts.items():
        assert what.replace("'", "&#39;") in page
        assert f">{number:,}<" in page


def test_a_file_that_does_not_say_counts_as_unknown(tmp_path: Path, shell: Shell) -> None:
    trace = tmp_path / "month.csv"
    rows = [f"{i},{i * 60},1,600,u{i % 3}" for i in range(30)]
    trace.write_text("\n".join(["job_id,submit_s,gpus,duration_s,user", *rows]) + "\n")
    said = " ".join(shell.ok("trace", "describe", trace).out.split())
    assert "What an import left out of this trace is not known" in said
    report = tmp_path / "report"
    words = ("-p", "fifo,sjf", "--cluster", "1x2", "--processes", "1", "-o", report)
    said = shell.ok("compare", trace, *words).out
    assert "is not known: the file does not say" in " ".join(said.split())
    assert "what was left out of its log is not known" in (report / "report.html").read_text()


def test_more_than_one_per_cent_lost_is_the_first_line_of_terminal_and_report(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    damaged, month, rejects = lossy(log, tmp_path), tmp_path / "month.csv", tmp_path / "rejects.csv"
    zone = ("--timezone", "Europe/Berlin")
    said = shell.ok("trace", "import", damaged, *zone, "--rejects", rejects, "-o", month).out
    assert said.splitlines()[0].startswith("note: left out ")
    lost = said.split("left out ")[1].split(" of ")[0]
    # Loud when it is used later, but no reason to stop: the import said it.
    words = shell.ok("compare", month, *COMPARED, "-o", tmp_path / "report").out
    first = f"The import of lossy.txt left out {lost} of "
    assert " ".join(words.split()).startswith(first)
    page = (tmp_path / "report" / "report.html").read_text()
    assert f'<p class="caution">{first}' in page
    assert page.index(first) < page.index('id="answer"')
    said = shell.ok("simulate", month, "-p", "sjf", *COMPARED[2:4], "-o", tmp_path / "run").out
    assert said.startswith("note: the import of lossy.txt left out ")
    assert f'<p class="caution">{first}' in (tmp_path / "run" / "report.html").read_text()
    assert shell.ok("trace", "describe", month).out.startswith("note: the import of lossy.txt")
    refused = shell("compare", damaged, *COMPARED)
    assert (refused.code, refused.out) == (2, "")
    assert "unusable rows lose" in refused.err


def test_a_part_of_a_trace_says_of_which_import_it_is(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    month, part = tmp_path / "month.csv", tmp_path / "part.parquet"
    shell.ok("trace", "import", log, "--timezone", "Europe/Berlin", "-o", month)
    shell.ok("trace", "slice", month, "--jobs", 20, "-o", part)
    found = shell.ok("trace", "describe", part, "--json").json
    assert found["jobs"] == 20
    assert "this trace has 20 of the jobs" in found["imported"]


def test_a_record_that_is_damaged_is_an_error_with_its_line(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    month = tmp_path / "month.csv"
    shell.ok("trace", "import", log, "--timezone", "Europe/Berlin", "-o", month)
    month.write_text(month.read_text().replace('"counts"', '"count"', 1))
    said = shell.refused("trace", "describe", month)
    assert f"{month}, line 1: the record of its import cannot be read" in said


def test_the_cluster_of_the_log_travels_through_a_change_that_drops_its_record(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    month, busy = tmp_path / "month.csv", tmp_path / "busy.csv"
    shell.ok("trace", "import", log, "--timezone", "Europe/Berlin", "-o", month)
    fits = shell.ok("trace", "describe", month, "--json").json["cluster"]
    assert ":a100+" in fits
    said = shell.ok("trace", "scale", month, "--cluster", "13x4", "--load", "0.9", "-o", busy).err
    assert "left out the recorded starts, ends and nodes and the dates of the log" in said
    assert shell.ok("trace", "describe", busy, "--json").json["cluster"] == fits
    # What else writes canonical files from canonical files keeps it too.
    again, few = tmp_path / "again.parquet", tmp_path / "few.csv"
    shell.ok("trace", "convert", busy, again)
    shell.ok("trace", "slice", again, "--queue", "a100", "--jobs", "20", "-o", few)
    assert shell.ok("trace", "describe", few, "--json").json["cluster"] == fits.partition("+")[0]
    told = shell.ok("compare", few, "-p", "fifo,sjf", "--processes", "1").out
    assert f"on {fits.partition('+')[0]}, which fits the log that the trace was made from" in (
        " ".join(told.split())
    )
    asked = shell.ok("whatif", busy, "--policies", "slurm,sjf", "--processes", "1", "--json")
    assert len(asked.json["rows"]) == 2


def test_a_change_of_a_trace_refuses_what_it_would_contradict_or_ignore(
    log: Path, tmp_path: Path, shell: Shell
) -> None:
    out = ("-o", tmp_path / "out.csv")
    onto = ("--cluster", "13x4", "--load", "0.9")
    said = shell.refused("trace", "scale", log, *onto, "--stretch", "0.8", *out)
    assert "it would change the load that --load sets" in said
    said = shell.refused("trace", "scale", log, "--keep", "0.5", "--by", "time", *out)
    assert "--by" in said and "only --load uses it" in said
    said = shell.refused("trace", "slice", log, "--jobs", "5", "--by", "arrivals", *out)
    assert "only --busiest-days uses it" in said
