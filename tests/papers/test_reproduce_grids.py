"""Tables of papers on screens: nothing is cut off, whatever the width."""

import io

from rich.console import Console

from papers.frame.claim import Table
from papers.frame.page import TableGrid

WIDE = Table(
    "wide",
    "Everybody",
    ["policy", "knows", *(f"column {i}" for i in range(9))],
    [[f"policy-{row}", "attained service", *(f"{row}{i}.25 h" for i in range(9))] for row in "12"],
    words=2,
)


def printed(sheet: Table, width: int) -> list[str]:
    """Returns the lines that a sheet takes on a screen of that width."""
    out = io.StringIO()
    Console(file=out, width=width).print(TableGrid(sheet))
    return out.getvalue().splitlines()


def test_a_table_that_fits_is_one_table() -> None:
    lines = printed(WIDE, 200)
    assert sum("policy-1" in line for line in lines) == 1
    assert "Everybody" in lines[0]


def test_a_wide_one_is_shown_in_parts_that_begin_with_the_first_column() -> None:
    lines = printed(WIDE, 60)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 60
    assert "…" not in text
    assert text.count("Everybody") == 1
    assert text.count("policy-2") == text.count("policy-1") > 1
    for row in WIDE.rows:
        for cell in row:
            assert cell in text
    for head in WIDE.heads:
        assert head in text


def test_a_column_wider_than_the_screen_is_folded() -> None:
    long = " ".join(["none may be stopped"] * 6)
    lines = printed(Table("long", "Long", ["claim", "n", "where"], [["a before b", "1", long]]), 40)
    assert max(map(len, lines)) <= 40
    words = "".join(lines).replace("a before b", "").split()
    assert words.count("stopped") == 6
