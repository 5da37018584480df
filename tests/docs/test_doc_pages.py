"""Pages hold together: links lead somewhere, nothing names a machine, pictures are small."""

import re
from pathlib import Path

import pytest

from doc_pages import PAGES, ROOT, blocks, command_lines, links, prose, title

ABSOLUTE = re.compile(r"(?<![\w.:~/-])/(?:home|root|work|tmp|usr|mnt|opt|var|Users)(?:/|\b)")
PICTURE_BYTES_MAX = 200_000


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as public hosts make them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target) if target else page
        assert there.exists(), f"{title(page)}: {link} does not exist"
        assert there.resolve().is_relative_to(ROOT), f"{title(page)}: {link} leaves the project"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{title(page)}: {link} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_no_page_names_an_absolute_path(page: Path) -> None:
    found = ABSOLUTE.search(page.read_text())
    assert found is None, f"{title(page)} names {found.group()!r}"


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    fresh = set(reached)
    while fresh:
        page = fresh.pop()
        for link in links(page):
            there = (page.parent / link.partition("#")[0]).resolve()
            if there.suffix == ".md" and there.exists() and there not in reached:
                reached.add(there)
                fresh.add(there)
    missing = [title(page) for page in PAGES if page not in reached]
    assert missing == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").iterdir()), ids=lambda p: p.name)
def test_pictures_are_small_whole_and_shown(picture: Path) -> None:
    assert picture.stat().st_size < PICTURE_BYTES_MAX
    assert picture.read_bytes().startswith((b"\x89PNG\r\n\x1a\n", b"<?xml"))
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    assert picture in shown


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_make_target_and_script_shown_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(page):
        for line in command_lines(block.text):
            words = line.split()
            # A sentence of an output may begin a line with the word, too.
            if words[0] == "make" and (len(words) < 3 or words[2][0] == "#" or "=" in words[2]):
                assert words[1] in targets, f"{title(page)}: make {words[1]}"
            if words[0] == "python" and words[1] == "-m" and words[2].startswith("benchmarks."):
                assert (ROOT / (words[2].replace(".", "/") + ".py")).exists(), line
            elif words[0] == "python" and words[1].endswith(".py"):
                assert (ROOT / words[1]).exists(), f"{title(page)}: {line}"
