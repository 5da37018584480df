"""Tables of text: as wide as their words, and never wider than the terminal."""

import io
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli import terminal
from dovetail.cli.text_table import CUT, Column, Line, cells, cut, table_lines

COLUMNS = (
    Column("job"),
    Column("name", least=4, stays=2),
    Column("time", right=True, stays=1),
    Column("reason", least=6),
)


def drawn(width: int, *rows: Sequence[str]) -> list[str]:
    """Returns a table as plain text."""
    lines = table_lines(COLUMNS, [[((cell, ""),) for cell in row] for row in rows], width)
    return ["".join(text for text, _ in line) for line in lines]


def test_columns_are_as_wide_as_their_words() -> None:
    assert drawn(80, ("1", "a", "0:05", "-"), ("1000", "longer", "12:05", "Priority")) == [
        "job    name      time   reason",
        "────────────────────────────────",
        "1      a         0:05   -",
        "1000   longer   12:05   Priority",
    ]
    assert drawn(80)[0] == "job   name   time   reason"


def test_where_there_is_no_room_the_widest_is_cut_and_then_columns_leave() -> None:
    row = ("1", "long-name", "0:05", "Resources")
    assert drawn(33, row)[2] == "1     long-na…   0:05   Resources"
    assert drawn(26, row)[2] == "1     lon…   0:05   Resou…"
    assert drawn(25, row)[::2] == ["job   name       reason", "1     long-na…   Resourc…"]
    assert drawn(18, row)[::2] == ["job   reason", "1     Resources"]
    assert drawn(5, row)[::2] == ["job   reason", "1     Resou…"]


def test_wide_characters_take_two_places() -> None:
    assert cells([("日本", ""), ("e\u0301", "red")]) == 5
    assert cut([("日本語", "red"), ("x", "")], 4) == [("日" + CUT, "red")]
    assert drawn(80, ("1", "日本", "0:05", "-"), ("2", "abcd", "0:05", "-"))[2:] == [
        "1     日本   0:05   -",
        "2     abcd   0:05   -",
    ]


words = st.text(st.sampled_from("ab 日:-"), max_size=12)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(["1", "12_3"]), words, words, words), max_size=4),
    st.integers(13, 90),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    lines = drawn(width, *rows)
    assert len(lines) == len(rows) + 2
    assert all(cells([(line, "")]) <= width for line in lines)
    for row, line in zip(rows, lines[2:], strict=True):
        assert line.startswith(row[0])
        assert width < 85 or all(cell.strip() in line for cell in row)


class Screen(io.StringIO):
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


LINES: list[Line] = [[("job ", "bold"), ("1", "red")], [("─" * 3, "")]]


def said(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, **environment: str) -> str:
    for name in ("NO_COLOR", "TERM", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", out)
    terminal.say(LINES)
    return out.getvalue()


def test_there_is_colour_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = "\x1b[1mjob \x1b[0m\x1b[31m1\x1b[0m\n───\n"
    assert said(monkeypatch, Screen()) == coloured
    for out, environment in (
        (io.StringIO(), {}),
        (Screen(), {"NO_COLOR": "1"}),
        (Screen(), {"TERM": "dumb"}),
    ):
        assert said(monkeypatch, out, **environment) == "job 1\n───\n"


def test_a_terminal_of_few_letters_gets_poorer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = Screen()
    poor.encoding = "ascii"
    assert said(monkeypatch, poor, TERM="dumb") == "job 1\n---\n"


def test_the_size_is_what_is_said_or_seen_or_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, io.StringIO())
    assert terminal.size() == (80, 24)
    monkeypatch.setenv("COLUMNS", "132")
    assert (terminal.width(), terminal.size()) == (132, (132, 24))
    monkeypatch.setenv("COLUMNS", "wide")
    assert (terminal.width(), terminal.size()[0]) == (terminal.UNBOUNDED, 80)


def test_a_picture_in_place_has_the_size_of_the_terminal_and_leaves_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen()
    said(monkeypatch, screen, COLUMNS="5", LINES="2", TERM="xterm")
    screen.seek(0)
    screen.truncate()

    def watch() -> None:
        with terminal.in_place() as draw:
            draw([[("abcdefg", "")], [("b", "red")], [("c", "")]])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch()
    drawn = f"\x1b[Habc{CUT}\x1b[K\n\x1b[31mb\x1b[0m\x1b[K\x1b[J"
    assert screen.getvalue() == terminal.ALTERNATE + drawn + terminal.ORDINARY
