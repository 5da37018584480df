"""Each row of the security page names a test, and the test is there."""

import ast
import re

import pytest

from doc_pages import ROOT

PAGE = ROOT / "docs/reference/security.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<can>[^|]+) \| (?P<test>[^|]+) \|$", re.MULTILINE)
ROWS = [m for m in ROW.finditer(PAGE.read_text()) if m["test"] not in ("test", "---")]
TEST = re.compile(r"`(tests/\S+\.py)(?: -k (\w+))?`")


def test_the_tables_are_read() -> None:
    assert len(ROWS) >= 25


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_a_row_names_a_test_that_there_is_or_says_yes(row: re.Match[str]) -> None:
    if row["test"] == "none":
        assert row["can"].startswith("yes"), "what is promised has a test"
        return
    named = TEST.fullmatch(row["test"])
    assert named is not None, f"neither a test nor none: {row['test']}"
    tree = ast.parse((ROOT / named[1]).read_text())
    functions = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    tests = [name for name in functions if name.startswith("test_")]
    assert any((named[2] or "test_") in name for name in tests), f"{named[1]} has no {named[2]}"
