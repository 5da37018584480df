"""Paths and modules that pages name exist, so a reader who follows a page arrives."""

import importlib.util
import re
from pathlib import Path

import pytest

from doc_pages import PAGES, ROOT, prose, title

SOURCE = ROOT / "src" / "dovetail"
HISTORY = ("CHANGELOG.md", "docs/decisions.md")
"""Pages that name files of earlier versions."""
OWN_BASE = {
    "docs/concepts/physics.md": SOURCE / "physics",
    "docs/concepts/algorithms.md": ROOT / "tests",
}
"""Pages that state a folder once and give paths below it."""
PATH = re.compile(r"`((?:[\w-]+/)+|(?:[\w-]+/)*\w+\.(?:py|toml))`")
MODULE = re.compile(r"`(dovetail(?:\.\w+)+)`")
USERS = {
    "my_policy.py",
    "quiet_hours.py",
    "train.py",
    "report/",
    "plots/",
    "profiles/",
    "digits.toml",
}
"""Files that a reader makes."""


def bases(page: Path) -> list[Path]:
    return [ROOT, SOURCE, *filter(None, [OWN_BASE.get(title(page))])]


def is_there(path: str, page: Path) -> bool:
    return any((base / path).exists() for base in bases(page))


def is_importable(name: str) -> bool:
    """Returns whether a dotted name is a module, or a name that its module defines."""
    module, _, last = name.rpartition(".")
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    return hasattr(importlib.import_module(module), last)


@pytest.mark.parametrize("page", [p for p in PAGES if title(p) not in HISTORY], ids=title)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    named = set(PATH.findall(prose(page))) - USERS
    assert sorted(path for path in named if not is_there(path, page)) == []


@pytest.mark.parametrize("page", [p for p in PAGES if title(p) not in HISTORY], ids=title)
def test_every_module_that_a_page_names_can_be_imported(page: Path) -> None:
    assert [name for name in MODULE.findall(prose(page)) if not is_importable(name)] == []


def test_a_wrong_path_or_module_is_noticed() -> None:
    assert not is_there("live/controller/health.py", ROOT / "docs/glossary.md")
    assert not is_importable("dovetail.report.no_such_thing")
