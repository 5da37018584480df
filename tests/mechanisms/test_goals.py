"""Goals of GIMBAL: signs (worked example 8), sets, and one of an operator's own."""

from math import inf
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.mechanisms.calibration.goals import Member, goal_of, together

ROOT = Path(__file__).resolve().parents[2]


def member(
    left_s: float, deadline_s: float = inf, *, use: float = 0.5, speed: float = 1.0
) -> Member:
    return Member.of(
        gpus=1, utilization=use, speed=speed, left_s=left_s, deadline_s=deadline_s, now=100.0
    )


def test_the_deadline_signs_of_worked_example_8() -> None:
    goal = goal_of("deadline")
    late, easy = member(350, 400), member(350, 900)
    assert late.slack_s == -50
    assert goal.objective([late]) == 50
    assert goal.priority(late) == 50
    assert goal.objective([easy]) == 0
    assert goal.priority(easy) == -450
    assert goal.objective([late, easy]) == 50
    assert together(goal, [late, easy]) == 50


def test_who_has_no_deadline_is_never_late_and_comes_last() -> None:
    goal = goal_of("deadline")
    assert goal.objective([member(1e9)]) == 0
    assert goal.priority(member(1e9)) == -inf


def test_jct_is_a_mean_and_favours_who_uses_little() -> None:
    goal = goal_of("jct")
    # 100 s of work at half speed take 200.
    members = [member(100, use=0.9, speed=0.5), member(100, use=0.3)]
    assert goal.objective(members) == 150
    assert [goal.priority(m) for m in members] == [-0.9, -0.3]
    assert together(goal, members) == pytest.approx(-0.6)


def test_makespan_is_the_last_end_and_favours_who_has_longest() -> None:
    goal = goal_of("makespan")
    members = [member(100), member(300)]
    assert goal.objective(members) == 300
    assert [goal.priority(m) for m in members] == [100, 300]
    assert together(goal, members) == 300


def test_who_stands_still_never_ends() -> None:
    assert member(1, speed=0.0).remaining_s == inf


def test_a_fourth_goal_is_read_from_a_file() -> None:
    goal = goal_of(f"{ROOT}/examples/even_slowdown.py:EvenSlowdown")
    members = [member(1, speed=0.5), member(1, speed=0.8)]
    assert goal.objective(members) == 2
    assert together(goal, members) == -0.5
    assert goal_of(f"{ROOT}/examples/even_slowdown.py") is not None


def test_the_example_that_looks_ahead_lets_the_last_run_on_alone() -> None:
    goal = goal_of(f"{ROOT}/examples/early_ends.py:EarlyEnds")
    # 100 s and 400 s to go; the longer has 300 s more at half speed, alone 150: 100 and 250.
    members = [member(100), member(200, speed=0.5)]
    assert goal.objective(members) == 175
    assert [goal.priority(m) for m in members] == [-100, -200]
    assert together(goal, members) == -150


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sooner", "no such goal"),
        ("makespam", "did you mean 'makespan'"),
        ("no_such_file.py:Goal", "no such goal file"),
        (f"{ROOT}/examples/even_slowdown.py:Other", "no class 'Other'"),
    ],
)
def test_it_says_what_is_wrong_with_a_goal(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        goal_of(text)


def test_a_goal_has_both_functions(tmp_path: Path) -> None:
    half = tmp_path / "half.py"
    half.write_text("class Half:\n    def objective(self, members): return 0.0\n")
    with pytest.raises(InputError, match="no method priority"):
        goal_of(str(half))
