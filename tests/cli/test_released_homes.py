"""Homes and logs of the first release open, or are refused with the way out.

`released_home` was written by release 0.1.0: an emulated cluster with jobs that ended, run, are
held and depend on others, stopped with `dovetail down`, and the log that it exported.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.core.cluster import Cluster
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.database import FORMAT, Database, format_of
from dovetail.live.store.queries import Queries, StoreReader
from dovetail.live.store.store import Store
from store_audit import audit
from store_format_1 import FORMAT_1

HERE = Path(__file__).parent / "released_home"
ENDED = {
    "1": "COMPLETED", "2_0": "COMPLETED", "2_1": "COMPLETED", "2_2": "COMPLETED", "8": "CANCELLED",
}  # fmt: skip
UNFINISHED = {5: State.RUNNING, 6: State.PENDING, 7: State.PENDING} | dict.fromkeys(
    (9, 10, 11), State.RUNNING
)


def statements(version: int) -> str:
    text = (HERE / "store_format_2.sql").read_text(encoding="utf-8")
    return text if version == 2 else text + FORMAT_1


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with closing(sqlite3.connect(home / "store.db")) as db:
        db.executescript(statements(request.param))
    (home / "store.db").chmod(0o600)
    (home / "up.json").write_bytes((HERE / "up.json").read_bytes())
    return home


def log_of(folder: Path, version: int) -> Path:
    """Writes the log as exported, or as version 1 had it: without controllers."""
    header, *lines = (HERE / "events_version_2.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(header) | {"version": version}
    if version == 1:
        lines = [line for line in lines if json.loads(line)["e"] not in ("controller", "learned")]
    path = folder / "events.jsonl"
    path.write_text("\n".join([json.dumps(first), *lines]) + "\n", encoding="utf-8")
    return path


def test_a_released_home_is_charged_with_its_running_jobs(home: Path, shell: Shell) -> None:
    said = shell.ok("chargeback", home, "--by", "user", "--json").json
    held_h = {row["who"]: row["gpu_hours"] for row in said["charges"]}
    rows = shell.ok("history", "--home", home, "--json").json["jobs"]
    assert {job["user"] for job in rows if job["gpu_hours"]} == held_h.keys() - {"(idle)"}
    ended = sum(job["gpu_hours"] for job in rows if job["state"] in ("COMPLETED", "CANCELLED"))
    assert sum(held_h.values()) - held_h.get("(idle)", 0.0) > ended > 0


def test_commands_read_a_released_home_without_a_controller(home: Path, shell: Shell) -> None:
    before = (home / "store.db").read_bytes()
    listed = shell("history", "--home", str(home), "--json").json
    assert {job["called"]: job["state"] for job in listed["jobs"]} == ENDED
    assert "cancelled by its owner" in shell("why", "8", "--home", str(home)).out
    assert shell("show", "1", "--home", str(home), "--json").json["model"] == "bert-base"
    assert "completed" in shell("history", "1", "--home", str(home)).out
    exported = shell("history", "--home", str(home), "--export", str(home / "new.jsonl"))
    assert exported.code == 0
    released = (HERE / "events_version_2.jsonl").read_text(encoding="utf-8").splitlines()
    assert (home / "new.jsonl").read_text(encoding="utf-8").splitlines()[1:] == released[1:]
    assert (home / "store.db").read_bytes() == before, "a reader changes nothing"


def test_a_controller_brings_a_released_store_up_to_date_and_takes_its_jobs_up(home: Path) -> None:
    with StoreReader(home / "store.db") as reader:
        before = {job.number: job for job in reader.live()}
        reader.check()
    database = Database(home / "store.db")
    queries = Queries(database.connection)
    recovered = Store(database, queries).recover()
    assert format_of(database.connection) == FORMAT
    assert recovered.epoch == 2
    assert {job.number: job.record.state for job in recovered.jobs} == UNFINISHED
    assert [(job.spec, job.record) for job in recovered.jobs] == [
        (job.spec, job.record) for job in before.values()
    ]
    assert audit(queries, cluster=Cluster.uniform(2, 4)) == []
    database.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_released_log_is_replayed_without_an_unexplained_difference(
    tmp_path: Path, shell: Shell, version: int
) -> None:
    replayed = shell("replay", str(log_of(tmp_path, version)))
    assert replayed.code == 0, replayed


def test_a_log_of_a_later_version_is_refused(tmp_path: Path, shell: Shell) -> None:
    refused = shell("replay", str(log_of(tmp_path, 3)))
    assert refused.code != 0
    assert "log version 3 is unknown, expected 1 to 2" in refused.err
    assert "read it with the version of dovetail that wrote it" in refused.err


def test_a_store_of_a_later_format_is_refused_with_the_way_out(home: Path, shell: Shell) -> None:
    with closing(sqlite3.connect(home / "store.db")) as db:
        db.execute("PRAGMA user_version=3")
    refused = shell("history", "--home", str(home))
    assert refused.code != 0
    assert "format 3, expected 2" in refused.err
    assert "use the version of dovetail that wrote it, or another --home" in refused.err
