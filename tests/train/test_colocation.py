"""Training loops that share a machine: whose turn it is, and what a profile says of them."""

import json
import math
import multiprocessing
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import colocation
from benchmarks.colocation_crew import Pace, parts_of
from benchmarks.colocation_machine import why_not
from benchmarks.colocation_profile import LIMIT, LOCK_STEP, joined, read_profile, tables
from benchmarks.colocation_sets import JobSet, Way, measured, planned
from benchmarks.colocation_turns import LockStep, PhasesOver, Tokens

CONTEXT = multiprocessing.get_context("spawn")


def together(*bodies: "threading.Thread") -> None:
    for body in bodies:
        body.start()
    for body in bodies:
        body.join(20)
        assert not body.is_alive(), "somebody waits for ever"


def test_a_token_has_one_holder_and_nobody_waits_for_ever() -> None:
    tokens, inside, most = Tokens(CONTEXT, 3), [0], [0]

    def body(member: int) -> None:
        for _ in range(300):
            tokens.take(2, member)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1
            tokens.give(2, member)

    together(*(threading.Thread(target=body, args=(n,), daemon=True) for n in range(3)))
    assert most == [1]


def test_who_does_not_wait_loses_the_turn_and_the_next_in_order_gets_it() -> None:
    tokens, got = Tokens(CONTEXT, 4), []
    tokens.take(0, 1)
    tokens.give(0, 1)
    tokens.take(0, 1)  # nobody else wanted it

    def body(member: int) -> None:
        tokens.take(0, member)
        got.append(member)
        tokens.give(0, member)

    waiting = [threading.Thread(target=body, args=(n,), daemon=True) for n in (0, 3)]
    for each in waiting:
        each.start()
    while sum(tokens.waiting(0)) < 2:
        pass
    tokens.give(0, 1)
    for each in waiting:
        each.join(20)
    assert got == [3, 0]


def test_members_in_lock_step_end_every_phase_together_and_leave_in_the_same_one() -> None:
    steps, passed, apart = LockStep(CONTEXT, 3), [0, 0, 0], [0]
    steps.begin(3, math.inf)

    def body(member: int) -> None:
        with suppress(PhasesOver):
            while True:
                if member == 1 and passed[1] == 50:
                    steps.end()
                steps.give(0, member)
                passed[member] += 1
                apart[0] = max(apart[0], max(passed) - min(passed))

    together(*(threading.Thread(target=body, args=(n,), daemon=True) for n in range(3)))
    assert passed == [50, 50, 50] and apart == [1]


def test_a_member_in_lock_step_is_idle_until_its_offset_comes_round() -> None:
    pair = JobSet(("disk", "cpu"), 2)
    first, second = parts_of(pair, Way(LOCK_STEP), (0, 3), Pace(0.5, 1.0))
    # With offset 3 it would begin by the network: one phase later, it begins by storage.
    assert (first.idle_phases, second.idle_phases) == (0, 1)
    assert first.ahead == second.ahead == 0


def test_jobs_alone_are_measured_before_each_block_and_limits_every_second_time() -> None:
    sets = [JobSet(("disk",), 0), JobSet(("disk", "disk"), 0)]
    plan = [(n, way.name) for n, _, way in planned(sets, 2)]
    ways = ["free", "tokens", "lock step", "one after the other"]
    assert plan == [
        (0, "alone"),
        *((0, way) for way in ways),
        (1, "alone"),
        (0, "limit"),
        (0, "limit"),
        (2, "alone"),
        *((1, way) for way in ways),
    ]


def cell(way: Way, repetition: int, *rates: float) -> dict[str, object]:
    some = {"iterations": 9, "used_s": [0.01] * 4, "waited_s": [0.0] * 4, "cores": [0.1] * 4}
    members = [{"rate_per_s": rate, **some} for rate in rates]
    told = {"name": way.name, "limited": way.limited, "share": way.share}
    return {"way": told, "repetition": repetition, "offsets": [0, 1], "members": members}


def test_a_profile_joins_repetitions_and_divides_by_the_rate_alone(tmp_path: Path) -> None:
    alone = {"kinds": ["a"], "ahead": 0, "cells": [cell(Way("alone"), n, 10.0) for n in (0, 1)]}
    limited = Way(LIMIT, 1, 0.5)
    cells = [cell(Way("free"), 0, 6.0, 7.0), cell(Way("free"), 1, 8.0, 9.0)]
    pair = {"kinds": ["a", "a"], "ahead": 0, "cells": [*cells, cell(limited, 0, 9.0, 2.0)]}
    (tmp_path / "a.json").write_text(json.dumps(alone))
    (tmp_path / "a-a.json").write_text(json.dumps(pair))
    profile = joined(tmp_path, ["a.json", "a-a.json"], {"command": "x"})
    assert [profile.sums(entry) for entry in profile.entries] == [
        [1.0, 1.0],
        [pytest.approx(1.3), pytest.approx(1.7)],
        [pytest.approx(1.1)],
    ]
    said = list(tables(profile))
    assert "| a + a | 1.50 ± 0.20 (0.70, 0.80) |" in said
    assert "| a + a: a limited to 50% | 1.10 ± 0.00 (0.90, 0.20) |" in said
    (tmp_path / "profile.json").write_text(profile.text())
    assert read_profile(tmp_path / "profile.json") == profile


def test_the_performance_page_prints_what_the_measured_profiles_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    colocation.main([])
    said = capsys.readouterr().out.splitlines()
    page = (Path(__file__).parents[2] / "docs/claims/performance.md").read_text()
    section = page.partition("## Sharing a machine")[2].partition("\n## ")[0]
    rows = [
        line
        for line in section.splitlines()
        if re.match(r"\| (\d+ sets|disk|cpu|compute|red|bal)", line)
    ]
    assert len(rows) == 10
    for row in rows:
        assert any(line.startswith(row.rstrip(" |")) for line in said), row


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
def test_two_loops_share_a_disk_cores_and_a_network_and_stop_together(tmp_path: Path) -> None:
    pair = JobSet(("disk", "reduction"), 2)
    cells = [(0, pair, Way(name)) for name in ("free", "lock step")]
    colocation.measure(tmp_path, cells, Pace(0.1, 0.6), math.inf)
    free, steps = measured(tmp_path, pair)
    assert min(member.iterations for cell in (free, steps) for member in cell.members) > 1
    assert all(used_s > 0 for member in free.members for used_s in member.used_s)
    assert free.members[0].waited_s < steps.members[0].waited_s
    one, other = (member.iterations for member in steps.members)
    assert abs(one - other) <= 1
    assert colocation.measure(tmp_path, cells, Pace(0.1, 0.6), math.inf) == 0


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
def test_the_whole_matrix_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--folder", str(tmp_path), "--repetitions", "1", "--seconds", "0.3", "--warm", "0.1"]
    colocation.main(words)
    colocation.main(["--folder", str(tmp_path), "--profile", str(tmp_path / "made.json")])
    said = capsys.readouterr().out
    assert "0 cells are left" in said
    assert said.count("| disk + cpu |") == 2 and "| disk + cpu + compute |" in said
