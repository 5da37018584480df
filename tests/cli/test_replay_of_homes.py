"""`dovetail replay HOME`: stores of controllers that restarted, of this version and older ones."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_runner import Shell

from cluster_by_hand import ByHand, spec
from dovetail.core.cluster import Cluster
from dovetail.live.serving.scheduler import build_scheduler
from dovetail.wire.submission import Submission

OLD = (
    '{"t":0.0,"e":"submitted","job":"1","gpus":1,"work_s":5.0,"length_s":5.0}',
    '{"t":0.0,"e":"submitted","job":"2","gpus":1,"work_s":5.0,"length_s":5.0}',
    '{"t":1.5,"e":"started","job":"1","how":"start","on":[[0,1]],"rate":1.0,"from":6.5}',
    '{"t":2.0,"e":"stopped","job":"1","why":"failed","done_s":0.0}',
    '{"t":2.0,"e":"withdrawn","job":"1"}',
    '{"t":2.0,"e":"started","job":"2","how":"start","on":[[0,1]],"rate":1.0,"from":7.0}',
    '{"t":9.0,"e":"ended","job":"2","how":"completed"}',
    '{"t":12.0,"e":"submitted","job":"1","submit_s":0.0,"gpus":1,"work_s":5.0,"length_s":5.0}',
    '{"t":12.4,"e":"started","job":"1","how":"resume","on":[[0,1]],"rate":1.0,"from":17.4}',
    '{"t":20.0,"e":"ended","job":"1","how":"completed"}',
)
"""A log of version 1: a short job is retried before its start is over, after restarts of the
controller that no fact tells of (jobs start at 1.5 s and 12.4 s by no event)."""


def home_of(folder: Path, facts: tuple[str, ...], policy: str = "fifo") -> Path:
    """Makes the folder of a cluster of one GPU with two jobs, whose store holds these facts."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    by_hand = ByHand(home)
    by_hand.intake.submit([Submission(spec()), Submission(spec())], key="k", user="ann")
    by_hand.close()
    mind = build_scheduler(policy, Cluster.uniform(1, 1), {}, stated_s=lambda job: 0.0)
    rows = [(json.loads(line)["t"], json.loads(line).get("job"), line) for line in facts]
    with closing(sqlite3.connect(home / "store.db")) as db:
        db.executemany("INSERT INTO facts(t, job, line) VALUES (?, ?, ?)", rows)
        manifest = mind.manifest_text("local:1")
        db.execute("INSERT OR REPLACE INTO meta(name, value) VALUES ('manifest', ?)", (manifest,))
        db.commit()
    return home


def controller(t: float, epoch: int, state: str, policy: str = "") -> str:
    under = f',"policy":"{policy}"' if policy else ""
    return f'{{"t":{t},"e":"controller","epoch":{epoch},"state":"{state}"{under}}}'


def told(first: str = "", second: str = "", starts_s: float = 12.4) -> tuple[str, ...]:
    """Returns those facts with what controllers record now, each started with a policy."""
    woke = '{"t":%s,"e":"woke"}'
    return (
        controller(0.0, 1, "recovering", first),
        *OLD[:2],
        controller(1.5, 1, "ready"),
        woke % 1.5,
        *OLD[2:7],
        controller(12.0, 2, "recovering", second),
        OLD[7],
        controller(12.4, 2, "ready"),
        woke % 12.4,
        OLD[8].replace("12.4", str(starts_s)),
        OLD[9],
    )


def test_a_home_of_an_older_version_is_replayed_and_what_it_lacks_is_said(
    shell: Shell, tmp_path: Path
) -> None:
    home = home_of(tmp_path, OLD)
    said = shell.ok("replay", home).out
    assert "2 placements differ from the log" in said
    assert "2 explained: the log is of a version that did not record when controllers" in said
    found = shell.ok("replay", home, "--json").json["differences"]
    assert [(d["t"], d["job"]) for d in found] == [(0.0, "1"), (12.0, "1")]
    assert all("controllers start" in d["why"] for d in found)


def test_a_home_that_tells_of_restarts_is_replayed_without_a_difference(
    shell: Shell, tmp_path: Path
) -> None:
    said = shell.ok("replay", home_of(tmp_path, told())).out
    assert said.startswith("fifo:bypass=strict: 5 decisions, 0 placements differ")
    assert (
        "the controller started 2 times; it made no decisions while it recovered, for 1.9 s" in said
    )


def test_what_no_restart_explains_is_told_and_makes_the_command_fail(
    shell: Shell, tmp_path: Path
) -> None:
    # The controller is ready at 12.4 s, and the job starts half a second later by no event.
    done = shell("replay", home_of(tmp_path, told(starts_s=12.9)))
    assert done.code == 1
    assert "at 12.4 s job 1: recorded not running, now 1 on node 0" in done.out


def test_a_policy_that_reads_speeds_may_differ_after_others_were_measured(
    shell: Shell, tmp_path: Path
) -> None:
    facts = list(told(starts_s=12.9))
    facts.insert(facts.index(OLD[6]), '{"t":9.0,"e":"learned"}')
    home = home_of(tmp_path, tuple(facts))
    assert (
        "explained: speeds were measured while it ran"
        in shell.ok("replay", home, "-p", "afs-p").out
    )
    # One that reads none decides the same, whatever was measured.
    done = shell("replay", home)
    assert done.code == 1 and "explained" not in done.out


def test_each_controller_is_replayed_under_the_policy_it_started_with(
    shell: Shell, tmp_path: Path
) -> None:
    home = home_of(tmp_path, told("srtf:bypass=skip", "fifo:bypass=strict"))
    assert shell.ok("replay", home).out.startswith("srtf:bypass=skip, then fifo:bypass=strict: ")


@pytest.mark.parametrize("line", ['"state":"asleep"', '"state":"ready"', '"epoch":"x"'])
def test_a_damaged_controller_fact_is_refused_in_words(
    shell: Shell, tmp_path: Path, line: str
) -> None:
    broken = (f'{{"t":0.0,"e":"controller",{line}}}', *OLD)
    assert "is damaged" in shell.refused("replay", home_of(tmp_path, broken))
