"""Blocks marked as examples are written to files, blocks marked as runnable are run."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from doc_pages import PAGES, ROOT, blocks, command_lines, title
from dovetail.cli.main import run

RUNNABLE = [page for page in PAGES if any(block.runs for block in blocks(page))]


def write_examples(page: Path, folder: Path) -> list[Path]:
    """Writes the example files of a page and returns them."""
    written = []
    for block in blocks(page):
        if block.file_name:
            path = folder / block.file_name
            path.write_text(block.text)
            written.append(path)
    return written


def test_there_is_something_to_run() -> None:
    assert {"docs/guides/analyse-your-log.md", "docs/guides/write-a-policy.md"} <= set(
        map(title, RUNNABLE)
    )


@pytest.mark.parametrize("page", RUNNABLE, ids=title)
def test_the_commands_of_a_page_run_in_order(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_examples(page, tmp_path)
    printed = ""
    for block in blocks(page):
        if block.runs:
            printed = run_lines(page, command_lines(block.text), capfd)
        elif block.info == "text output":
            for line in block.text.splitlines():
                assert line in printed.splitlines(), f"{title(page)}: not printed: {line}"


def run_lines(page: Path, lines: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Runs command lines that must succeed; returns what they print."""
    printed = ""
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "dovetail", f"{title(page)}: only our commands are run: {line}"
        extra = ["--processes", "1"] if words[1] in ("compare", "whatif") else []
        code = run([*words[1:], *extra])
        said = capfd.readouterr()
        assert code == 0, f"{title(page)}: {line}: {said.err}"
        assert said.out, f"{line} says nothing"
        printed += said.out
    return printed


def test_the_example_policy_keeps_the_conformance_suite(tmp_path: Path) -> None:
    page = ROOT / "docs/guides/write-a-policy.md"
    names = [path.name for path in write_examples(page, tmp_path)]
    assert names == ["my_policy.py", "quiet_hours.py", "test_my_policy.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_policy.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "failed" not in done.stdout


def test_the_example_policy_is_well_typed_and_formatted(tmp_path: Path) -> None:
    write_examples(ROOT / "docs/guides/write-a-policy.md", tmp_path)
    settings = ["--config", str(ROOT / "pyproject.toml")]
    for words in (["check", *settings], ["format", "--check", *settings]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "my_policy.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_script_is_named_in_a_page(script: Path) -> None:
    assert any(f"examples/{script.name}" in page.read_text() for page in PAGES)
