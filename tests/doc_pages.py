"""The documentation as data: pages, fenced blocks, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CLAIMS = "fidelity comparison performance bounds uncertainty"
REPRODUCTIONS = "afs sjf-bsbf muri gimbal a-srpt"
MOVES = {
    **{f"docs/{n}.md": f"docs/concepts/{n}.md" for n in ("physics", "algorithms", "forecasting")},
    **{f"docs/{n}.md": f"docs/claims/{n}.md" for n in CLAIMS.split()},
    **{
        f"docs/reproduction-{n}.md": f"docs/claims/reproduction-{n}.md"
        for n in REPRODUCTIONS.split()
    },
    "docs/adding-a-policy.md": "docs/guides/adding-a-policy.md",
    "docs/operating.md": "docs/guides/analyse-your-log.md",
    "docs/live.md": "docs/guides/operate-a-cluster.md",
    "docs/training.md": "docs/guides/train-elastic.md",
    "docs/engines.md": "docs/concepts/engines.md",
    "docs/measuring.md": "docs/concepts/measuring.md",
    "docs/job-specs.md": "docs/reference/job-spec.md",
    "docs/traces.md": "docs/reference/traces.md",
    "docs/metrics.md": "docs/reference/metrics.md",
}
"""Pages that move, while links in pages of both kinds name either place: to be emptied."""
_PLACES = [(ROOT / old, ROOT / new) for old, new in MOVES.items()]
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


def page_at(path: Path) -> Path:
    """Returns where a page is that a link names: there, or at its other place while it moves."""
    path = path.resolve()
    for here, there in (*_PLACES, *((new, old) for old, new in _PLACES)):
        if path == here and not here.exists():
            return there
    return path
