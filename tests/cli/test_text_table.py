"""Tables of text: as wide as their words, and never wider than the terminal."""

import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli import terminal
from dovetail.cli.text_table import CUT, Column, Line, Table, cells, cut

COLUMNS = (
    Column("job"),
    Column("name"),
    Column("time", right=True),
    Column("where", wraps=True, least=5),
    Column("reason", wraps=True, least=9),
)


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def table(*rows: tuple[str, ...]) -> Table:
    made = Table(COLUMNS)
    for row in rows:
        made.add(*row)
    return made


def test_columns_are_as_wide_as_their_words() -> None:
    made = table(("1", "a", "0:05", "0:0-1", "-"), ("1000", "longer", "12:05", "-", "Priority"))
    assert plain(made.lines(80)) == [
        "job   name     time  where  reason",
        "────────────────────────────────────",
        "1     a        0:05  0:0-1  -",
        "1000  longer  12:05  -      Priority",
    ]
    assert plain(table().lines(80))[0] == "job  name  time  where  reason"


def test_what_has_no_room_wraps_if_it_may_and_else_is_cut() -> None:
    made = table(("1", "a-long-name", "0:05", "0:0-3 1:0-3 2:1", "BadConstraints"))
    assert plain(made.lines(51))[2:] == [
        "1    a-long-name  0:05  0:0-3 1:0-3  BadConstraints",
        "                        2:1",
    ]
    narrow = plain(made.lines(34))
    assert narrow[2].split()[:3] == ["1", "a-lo" + CUT, "0:05"]
    assert max(map(len, narrow)) == 34


def test_wide_characters_take_two_places() -> None:
    assert cells([("日本", ""), ("e\u0301", "red")]) == 5
    assert cut([("日本語", "red"), ("x", "")], 4) == [("日" + CUT, "red")]
    made = table(("1", "日本", "0:05", "-", "-"), ("2", "abcd", "0:05", "-", "-"))
    assert plain(made.lines(80))[2:] == ["1    日本  0:05  -      -", "2    abcd  0:05  -      -"]


words = st.text(st.sampled_from("ab 日:-"), max_size=12)


@settings(derandomize=True, max_examples=80)
@given(st.lists(st.tuples(words, words, words, words, words), max_size=4), st.integers(32, 90))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table(*rows).lines(width)
    assert all(cells(line) <= width for line in lines)
    for row, line in zip(rows, lines[2:], strict=False):
        if len(lines) == len(rows) + 2 and width == 90:
            assert all(word in plain([line])[0] for cell in row for word in cell.split())


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
    assert terminal.width() == 80


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
