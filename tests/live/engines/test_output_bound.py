"""The output of a job that writes without end is bounded, and the newest part is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.live.engines.last_output import last_lines
from dovetail.live.engines.output_bound import OutputBound, shorten
from dovetail.live.system.log_file import continue_log, rotate
from patience import until

MANY = 1 << 16


def lines(count: int) -> bytes:
    return b"".join(b"line %07d\n" % i for i in range(count))


def test_the_newest_half_is_kept_and_a_line_says_so(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(lines(10_000))
    shorten(file, MANY)
    older = tmp_path / "output.log.1"
    assert older.read_bytes() == lines(10_000)[-MANY // 2 :]
    assert file.read_text() == (
        "[dovetail: the output exceeded 0.0625 MiB; "
        "its newest part until here is in output.log.1]\n"
    )
    assert os.stat(older).st_mode & 0o777 == 0o600


def test_a_program_that_has_the_file_open_writes_on_behind_that_line(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    with open(file, "ab", buffering=0) as out:
        out.write(lines(10_000))
        shorten(file, MANY)
        out.write(b"after\n")
    assert file.read_bytes().endswith(b"output.log.1]\nafter\n") and file.stat().st_size < 200
    assert last_lines("/", str(file), 90_000).endswith("after"), "its beginning is gone"


def test_where_the_copy_cannot_be_written_the_file_is_emptied_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "output.log"
    file.write_bytes(lines(10_000))
    (tmp_path / "output.log.1").mkdir()
    shorten(file, MANY)
    assert "nothing before this is kept" in file.read_text()


@pytest.mark.parametrize("most_bytes", [MANY, 0])
def test_a_program_without_end_stays_within_the_bound_unless_there_is_none(
    tmp_path: Path, most_bytes: int
) -> None:
    file, bound = tmp_path / "output.log", OutputBound(lambda: most_bytes)
    text = "import sys\nwhile True: sys.stdout.write('x' * 99 + chr(10))"
    with open(file, "ab") as out, subprocess.Popen([sys.executable, "-c", text], stdout=out) as job:
        try:
            until(lambda: file.stat().st_size > 4 * MANY)
            bound._look_s = 0.0
            bound.tick(lambda: {file: -1})
            if most_bytes:
                until((tmp_path / "output.log.1").exists)
                assert bound._thread is not None
                bound._thread.join()
                assert (tmp_path / "output.log.1").stat().st_size >= MANY // 2
        finally:
            job.kill()
    assert (tmp_path / "output.log.1").exists() is bool(most_bytes)


def test_our_own_logs_are_continued_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_bytes(b"x" * 100)
    assert not rotate(log, 101) and rotate(log, 100)
    assert not log.exists() and (tmp_path / "agent.log.1").stat().st_size == 100
    program = (
        "import sys; from pathlib import Path\n"
        "from dovetail.live.system.log_file import continue_log\n"
        "for i in range(30):\n"
        "    continue_log(Path(sys.argv[1]), 100)\n"
        "    print(f'line {i:3}', file=sys.stderr, flush=True)\n"
    )
    with log.open("ab") as out:
        subprocess.run([sys.executable, "-c", program, str(log)], stderr=out, check=True)
    kept = (tmp_path / "agent.log.1").read_text() + log.read_text()
    assert kept.splitlines()[-1] == "line  29" and len(kept) <= 220
    assert "line  28" in kept


def test_a_process_that_writes_elsewhere_renames_nothing(tmp_path: Path) -> None:
    log = tmp_path / "controller.log"
    log.write_bytes(b"x" * 100)
    continue_log(log, 10)
    assert log.stat().st_size == 100
