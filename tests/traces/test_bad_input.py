"""Every kind of bad file gets one clear error that names file, line and column."""

import gzip
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.traces.canonical import read_trace, write_apart, write_trace
from dovetail.traces.importing import import_trace, sniff
from dovetail.traces.json_list import json_entries

HEADER = "job_id,submit_s,gpus,duration_s\n"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    return str(caught.value)


def written(tmp_path: Path, data: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.csv") == f"{tmp_path}/no.csv: there is no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_truncated_gzip(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}.25,{i % 7 + 1},{i * 37 % 1000 + 1}\n" for i in range(20000))
    whole = gzip.compress((HEADER + rows).encode())
    path = written(tmp_path, whole[: len(whole) // 2], "t.csv.gz")
    message = refusal(path)
    assert message.startswith(f"{path}, line ")
    assert message.endswith(": the gzip data end too early (the file is truncated)")


def test_a_damaged_gzip(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i},1,{i * 37 % 1000 + 1}\n" for i in range(5000))
    whole = bytearray(gzip.compress((HEADER + rows).encode()))
    whole[-8:-4] = b"\0\0\0\0"  # the check sum
    assert "gzip data are damaged" in refusal(written(tmp_path, bytes(whole)))


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_wrong_delimiter(tmp_path: Path, mark: str, word: str) -> None:
    path = written(tmp_path, (HEADER + "1,0,1,5\n").replace(",", mark))
    assert refusal(path) == (
        f"{path}, line 1: has no column 'job_id' "
        f"(the separators seem to be {word}; expected commas)"
    )


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,submit_s,gpus,duration\n1,0,1,5\n")
    assert refusal(path) == (
        f"{path}, line 1: has no column 'duration_s' (did you mean 'duration'?)"
    )


def test_a_column_named_twice(tmp_path: Path) -> None:
    path = written(tmp_path, "job_id,submit_s,gpus,duration_s,gpus\n1,0,1,5,1\n")
    assert refusal(path) == f"{path}, line 1: repeats the column 'gpus'"


@pytest.mark.parametrize("zipped", [False, True])
def test_text_in_place_of_a_number_is_found_on_its_line(tmp_path: Path, zipped: bool) -> None:
    data = (HEADER + "1,0,1,5\n\n2,0,1,5\n3,0,four,5\n").encode()
    path = written(tmp_path, gzip.compress(data) if zipped else data)
    assert refusal(path) == f"{path}, line 5, column gpus: 'four' is not a number"


def test_lines_are_right_after_quoted_line_ends(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'job_id,submit_s,gpus,duration_s,user\n1,0,1,5,"a\nb\nc"\n2,0,1,5,bob\n3,0,1,five,eve\n',
    )
    assert refusal(path) == f"{path}, line 6, column duration_s: 'five' is not a number"


def test_too_many_values_in_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "1,0,1,5\n2,0,1,5,9,9\n")
    assert refusal(path) == f"{path}, line 3: has 6 values for 4 columns"


def test_a_quote_never_closed(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + '1,0,1,5\n2,"0,1,5\n')
    assert refusal(path) == f"{path}, line 3: cannot be split into values: unexpected end of data"


@pytest.mark.parametrize("column", ["elastic", "status"])
def test_a_word_that_means_nothing(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, f"job_id,submit_s,gpus,duration_s,{column}\n1,0,1,5,perhaps\n")
    assert refusal(path).startswith(f"{path}, line 2, column {column}: 'perhaps' is n")


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER.encode() + b"1,0,1,5\n\xff\xfe,0,1,5\n")
    assert refusal(path) == (
        f"{path}, line 3, byte 1: the text is not UTF-8 "
        "(convert the file to UTF-8, for example with iconv)"
    )


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER.encode() + b"1,0,1,5\n\0\0")
    assert "line 3: contains a zero byte" in refusal(path)


def test_a_tar_archive_is_to_be_unpacked(data_dir: Path) -> None:
    path = data_dir / "traces/alibaba_gpu_v2020/pai_machine_spec.tar.gz"
    with pytest.raises(InputError, match="this is a tar archive: unpack it first"):
        import_trace([path], "itp")


def test_lines_that_end_as_on_old_machines(tmp_path: Path) -> None:
    path = written(tmp_path, (HEADER + "1,0,1,5\n").replace("\n", "\r"))
    assert refusal(path).startswith(f"{path}, line 1: contains a carriage return")


def test_a_header_of_half_a_megabyte(tmp_path: Path) -> None:
    path = written(tmp_path, "x" * 500_000 + "\n1\n")
    message = refusal(path)
    assert message.startswith(f"{path}, line 1: has no column 'job_id'")
    assert len(message) < 500


@pytest.mark.parametrize("data", ["", "\n\n"])
def test_an_empty_file(tmp_path: Path, data: str) -> None:
    path = written(tmp_path, data)
    assert refusal(path) == f"{path}: is empty (expected a header line and one line per job)"


def test_a_trace_without_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER)
    assert refusal(path) == f"{path}: contains no jobs"


def test_a_trace_without_a_usable_job_says_why(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "1,0,0,5\n2,0,0,5\n3,0,1,-1\n")
    assert refusal(path) == (
        f"{path}: none of its 3 rows are usable: 2 no GPU, 1 negative duration"
    )


def test_a_two_gigabyte_line_is_refused_and_never_held(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("wb") as stream:
        stream.write(HEADER.encode() + b"1,0,1,5\n" + b"x" * (3 << 20))
        stream.truncate(2 << 30)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from dovetail.core.errors import InputError\n"
        "from dovetail.traces.canonical import read_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_trace(Path(sys.argv[1]))\n"
        "except InputError as error:\n"
        "    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "    print(grown // 1024, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    grown_mib, _, message = done.stdout.strip().partition(" ")
    assert message == (
        f"{path}, line 3: the line is longer than 1048576 bytes (expected one job per line)"
    )
    assert int(grown_mib) < 100


def test_a_long_line_inside_gzip_is_refused_too(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(HEADER.encode() + b"y" * (64 << 20)), "t.csv.gz")
    assert "line 2: the line is longer than 1048576 bytes" in refusal(path)


def test_a_json_entry_never_closed_is_not_held_either(tmp_path: Path) -> None:
    path = written(tmp_path, b'[\n{"jobid": "' + b"z" * (40 << 20))
    with pytest.raises(InputError, match="line 2: an entry does not end within 16777216"):
        list(json_entries(path))


def test_broken_json_names_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, '[\n{"a": 1},\n{"a": \n')
    with pytest.raises(InputError, match="line 3: the JSON is invalid or truncated"):
        list(json_entries(path))


def test_a_slip_in_a_huge_json_file_is_told_where_it_is(tmp_path: Path) -> None:
    entry = '{"jobid": "a", "attempts": [{"start_time": "x", "detail": []}]},\n'
    path = written(tmp_path, "[\n" + entry * 5 + '{"jobid" "b"},\n' + entry * 400_000)
    entries = json_entries(path)
    assert [next(entries)[0] for _ in range(5)] == [2, 3, 4, 5, 6]
    with pytest.raises(InputError, match="line 7: the JSON is invalid or truncated: Expecting ':'"):
        next(entries)


def test_a_file_in_no_known_format_lists_the_formats(tmp_path: Path) -> None:
    path = written(tmp_path, "when,what\n1,2\n")
    with pytest.raises(InputError) as caught:
        sniff(path)
    assert f"{path}, line 1: has an unknown format (its first line has: when, what)" in str(
        caught.value
    )
    assert "philly-json" in str(caught.value)


def test_an_unknown_format_names_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n")
    with pytest.raises(InputError, match="did you mean 'slurm'"):
        import_trace([path], "slurn")


@contextmanager
def small_disk() -> Iterator[None]:
    """Lets no file grow beyond 4 KB, as a full disk would.

    Around the write alone: the limit holds for the whole process, and where the test run's own
    output goes to a file, even the line that reports a test would fail under it.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    path.write_text("old")
    rng = np.random.default_rng(0)
    n = 5000
    jobs = JobTable.build([str(i) for i in range(n)], np.arange(n) * 1.0, np.ones(n, np.int64))
    with pytest.raises(InputError) as caught, small_disk():
        write_trace(Trace.of(jobs, rng.uniform(1, 9, n)), path)
    assert str(caught.value) == f"{path}: cannot be written: File too large"
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_text() == "old"


def test_a_full_disk_leaves_no_folder_of_some_virtual_clusters(tmp_path: Path) -> None:
    def part(n: int) -> Trace:
        jobs = JobTable.build([str(i) for i in range(n)], np.zeros(n), np.ones(n, np.int64))
        return Trace.of(jobs, np.ones(n))

    refused = pytest.raises(InputError, match="cannot be written: File too large")
    with refused, small_disk():
        write_apart({"small": part(3), "large": part(5000)}, tmp_path / "vcs")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path: Path) -> None:
    jobs = JobTable.build(["a"], np.zeros(1), np.ones(1, np.int64))
    path = tmp_path / "no" / "t.csv"
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_trace(Trace.of(jobs, np.ones(1)), path)
