"""The rules of the source for what is not in the wheel: papers/ and tools/."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for folder in ("papers", "tools") for path in (ROOT / folder).rglob("*.py"))
SOURCE = sorted((ROOT / "src" / "dovetail").rglob("*.py"))
LINES_MAX, FUNCTION_LINES_MAX, BRANCHES_MAX = 500, 60, 15
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, node.name
            branches = sum(isinstance(inside, BRANCHES) for inside in ast.walk(node))
            assert branches <= BRANCHES_MAX, f"{name(path)}:{node.lineno} {node.name}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_signature_has_any(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            hints = [
                node.returns,
                *(a.annotation for a in ast.walk(node) if isinstance(a, ast.arg)),
            ]
            words = {n.id for h in hints if h for n in ast.walk(h) if isinstance(n, ast.Name)}
            assert "Any" not in words, f"{name(path)}:{node.lineno} {node.name}"


def test_no_class_has_the_name_of_another() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in [*FILES, *SOURCE]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name(path))
    outside = {
        cls: files
        for cls, files in places.items()
        if len(files) > 1 and any(not file.startswith("src/") for file in files)
    }
    assert outside == {}


def test_papers_know_each_other_not() -> None:
    """A paper imports the frame, and nothing of another paper."""
    papers = {p.parent.name for p in (ROOT / "papers").glob("*/claims.py")} | {"systems"}
    for path in FILES:
        here = path.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("papers."):
                there = (node.module or "").split(".")[1]
                assert there not in papers or there == here[1], f"{name(path)}: {node.module}"
