"""The generated tables of docs/reference are what the code gives today."""

import sys
from pathlib import Path

import pytest

from doc_pages import ROOT, title

sys.path.insert(0, str(ROOT))

from tools import reference


@pytest.mark.parametrize("page", reference.generated_pages(), ids=title)
def test_a_generated_table_is_what_the_code_gives(page: Path) -> None:
    assert page.read_text() == reference.written(page), "run: python -m tools.reference"


def test_every_section_is_shown() -> None:
    shown = "".join(page.read_text() for page in reference.generated_pages())
    assert all(f"<!-- generated: {name} -->" in shown for name in reference.SECTIONS)
