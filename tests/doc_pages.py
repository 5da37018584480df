"""The documentation as data: pages, fenced blocks, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block; `info` is what stands behind its opening fence."""

    info: str
    text: str

    @property
    def file_name(self) -> str:
        """Returns the name of a block marked `LANGUAGE example: NAME`, else nothing."""
        _, marked, name = self.info.partition("example: ")
        return name.strip() if marked else ""

    @property
    def runs(self) -> bool:
        """Tells whether the block is marked to be run as it stands."""
        return self.info.split() == ["sh", "run"]


def title(page: Path) -> str:
    """Returns a page's path from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Returns the fenced blocks of a page."""
    return [Block(info.strip(), text) for info, text in _FENCE.findall(page.read_text())]


def prose(page: Path) -> str:
    """Returns a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links and pictures."""
    return _LINK.findall(prose(page))


def command_lines(text: str) -> list[str]:
    """Returns the lines of a shell text, continued ones joined."""
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
