"""Pages can be read as text and as tables: lines, cells and the front page have a limit."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from doc_pages import PAGES, ROOT, prose, title

LINE_MAX = 160
CELL_WORDS_MAX = 25
README_WORDS_MAX = 900

UNCONVERTED = ["CHANGELOG"]
"""The log of changes has one entry a line."""


def is_converted(page: Path) -> bool:
    return not {page.stem, page.parent.name} & set(UNCONVERTED) or page.parent.name == "reference"


def long_lines(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines() if len(line) > LINE_MAX]


def long_cells(page: Path) -> list[str]:
    rows = [line for line in prose(page).splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    return [cell for cell in cells if len(cell.split()) > CELL_WORDS_MAX]


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_lines_fit_a_screen(page: Path) -> None:
    assert not is_converted(page) or not long_lines(page), long_lines(page)[:3]


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_no_table_cell_is_a_paragraph(page: Path) -> None:
    assert not is_converted(page) or not long_cells(page), long_cells(page)[:3]


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_row_of_a_table_has_a_cell_for_each_column(page: Path) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE)
    for rows in (table.splitlines() for table in tables):
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1, rows[0]


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_a_page_has_one_title_and_skips_no_level(page: Path) -> None:
    levels = [len(head) for head in re.findall(r"^(#+) ", prose(page), re.MULTILINE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deep <= above + 1 for above, deep in pairwise(levels))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS_MAX


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    pages = [p for p in PAGES if p.parent.name in ("guides", "concepts", "reference", "claims")]
    left_out = [title(p) for p in pages if p.relative_to(ROOT / "docs").as_posix() not in index]
    assert left_out == []
