"""A controller that gives up at its start is heard by whoever started it, log or no log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.cli.up import reported, reporting
from dovetail.core.errors import InputError
from dovetail.live.edges.protocols import StoreError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("store.db", "is damaged", "put back a copy"), "store.db: is damaged (put"),
        (StoreError("nothing can be kept"), "nothing can be kept"),
        (OSError(28, "No space left on device", "/home/a/lock"), "/home/a/lock: No space left"),
    ],
)
def test_what_ends_the_start_is_reported_as_a_sentence(error: Exception, said: str) -> None:
    report = os.memfd_create("report")
    with pytest.raises(type(error)), reporting(report):
        raise error
    assert reported(report).startswith(said)
    os.close(report)


def test_a_controller_whose_log_is_full_is_heard_all_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "store.db").write_text("no database, and no room to say so; " * 200)
    report = os.memfd_create("report")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dovetail", "up", "--foreground", "--home", str(home),
             "--engine", "emulated:1x1", "--report-fd", str(report)],
            stdout=full, stderr=full, pass_fds=(report,),
        )  # fmt: skip
    assert done.returncode != 0
    assert "store.db: cannot be read as a store" in reported(report)
    os.close(report)
