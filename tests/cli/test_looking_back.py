"""What has been can be asked though no controller runs; what is, and changes, cannot."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import Shell

from cluster_by_hand import ByHand, spec
from dovetail.core.messages import Ended, Submitted
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.submission import Submission

NOTE = "note: no controller is running; this is the state at its last stop\n"
YEAR_S = 365 * 86400.0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Gives the folder of a cluster whose controller is gone: a job failed, another waits."""
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    monkeypatch.setenv("DOVETAIL_HOME", str(folder))
    by_hand = ByHand(folder)
    jobs = [Submission(spec(name)) for name in ("broken", "next")]
    by_hand.intake.submit(jobs, key="k", user="ann")
    by_hand.store.write(JournalEntry(facts=(Submitted(1.0, 1, YEAR_S), Ended(70.0, 1, "failed"))))
    ended = {"state": State.FAILED, "exit_code": 3, "reason": "NonZeroExitCode", "end_s": 130.0}
    by_hand.record(1, first_start_s=110.0, ran_s=15.0, **ended)
    (by_hand.folder.make_job(1) / "output.log").write_text("one\ntwo\n")
    by_hand.close()
    yield folder
    shutil.rmtree(folder)


def test_what_has_been_is_told_by_the_folder(
    home: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    history = shell.ok("history")
    (row,) = history.out.splitlines()[2:]
    assert row.split() == [
        "1",
        "broken",
        "ann",
        "FAILED",
        "1",
        "0:10",
        "1:50",
        "2:10",
        "0:15",
        "0.00",
        "3",
        "NonZeroExitCode",
    ]
    assert history.err == NOTE
    assert shell.ok("history", "--since", "1h", "--json").json["jobs"][0]["ran_s"] == 15.0
    assert ["ran", "0:15"] in [line.split() for line in shell.ok("show", 1).out.splitlines()]
    assert shell.ok("show", 2).out.count("PENDING") == 1
    assert "exited with code 3" in shell.ok("why", 1).out
    logs = shell.ok("logs", "-n", 1, 1)
    assert (logs.out, logs.err) == ("two\n", NOTE)
    assert "there is no such job" in shell("logs", 7).err


def test_a_length_that_nobody_knows_is_no_year(home: Path, shell: Shell) -> None:
    submitted, ended = shell.ok("history", 1).out.splitlines()
    assert "length_s -" in submitted and "365-" not in submitted
    assert ended.split()[:4] == ["1:10", "ended", "job", "1"]
    assert '"length_s":null' in shell.ok("history", 1, "--json").out


def test_what_only_a_controller_knows_or_does_needs_one(home: Path, shell: Shell) -> None:
    for words in (
        ("why", 2), ("ls",), ("nodes",), ("top", "--once"), ("logs", "-f", 2), ("cancel", 2),
        ("submit", "--", "true"),
    ):  # fmt: skip
        said = shell(*words)
        absent = f"dovetail: no controller runs in {home} (dovetail up starts one)\n"
        assert (said.code, said.out) == (1, "")
        assert said.err.removeprefix(NOTE) == absent
