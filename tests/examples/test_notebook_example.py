"""The example of the documentation runs as it stands."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "notebook.py"


def test_the_notebook_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    assert "the mean job" in said
    assert "certified prices" in said


def test_the_documentation_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert shown[0].strip() == EXAMPLE.read_text("utf-8").split('"""\n', 1)[1].strip()


def test_every_other_piece_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text("utf-8")
    pieces = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1:]
    assert pieces
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for piece in pieces:
        exec(compile(piece, "python.md", "exec"), names)
