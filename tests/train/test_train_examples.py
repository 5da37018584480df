"""The examples of training run as the page shows them, and elastically."""

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from doc_pages import ROOT, blocks

EXAMPLES = ROOT / "examples" / "train"
PAGE = ROOT / "docs" / "guides" / "train-elastic.md"


def run(script: str, *words: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *words]
    alone = {k: v for k, v in os.environ.items() if not k.startswith("DOVETAIL")}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", ["plain_digits.py", "digits_cnn.py"])
def test_the_digits_are_learned_alone(script: str) -> None:
    assert float(run(script).split()[2].rstrip("%")) > 75


def test_the_transformer_runs_and_resumes(tmp_path: Path) -> None:
    assert run("tiny_transformer.py", "1", str(tmp_path)).startswith("10000 sums in 40 steps")
    assert run("tiny_transformer.py", "2", str(tmp_path)).startswith("20000 sums in 80 steps")


def test_pictures_are_read_by_loader_processes() -> None:
    assert run("heavy_input.py", "150", "2").startswith("300 pictures")


def test_the_page_shows_how_the_two_scripts_differ() -> None:
    plain, elastic = (
        (EXAMPLES / name).read_text().splitlines() for name in ("plain_digits.py", "digits_cnn.py")
    )
    real = [line for line in difflib.unified_diff(plain, elastic) if line[:1] in "+-"]
    (shown,) = (b.text.splitlines() for b in blocks(PAGE) if b.info == "diff")
    assert shown
    for line in shown:
        assert line in real or (line[:1] in ("", " ") and (line[1:] in plain)), line


def test_the_rehearsal_of_the_page_runs_and_the_digits_are_learned(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (text,) = (b.text for b in blocks(PAGE) if b.info == "python")
    exec(compile(text, str(PAGE), "exec"), {})
    right = capfd.readouterr().out.rpartition("% of")[0].split()[-1]
    assert float(right) > 88
