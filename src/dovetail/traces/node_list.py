"""Node lists as Slurm writes them: `gpu[01-03,07],login1` are five nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

NODES_MAX = 65_536
"""The most nodes of one list: a longer one is damaged (Slurm's own limit is 65,533)."""

_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")


@lru_cache(maxsize=65_536)
def node_names(text: str) -> tuple[str, ...]:
    """Returns the names in a node list, in its order; none for `None assigned` or damaged text."""
    names: list[str] = []
    if " " in text or text.count("[") != text.count("]"):
        return ()
    for part in _PART.findall(text):
        pieces = [tuple(_choices(m[1], m[2])) for m in _PIECE.finditer(part)]
        if not all(pieces):
            return ()
        names += ("".join(choice) for choice in product(*pieces))
        if len(names) > NODES_MAX:
            return ()
    return tuple(names)


def _choices(ranges: str | None, plain: str | None) -> Iterator[str]:
    """Yields the texts that one piece stands for: `[01-03]` for three, `gpu` for itself."""
    if plain is not None:
        yield plain
        return
    for item in (ranges or "").split(","):
        low, dash, high = item.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            return
        last = int(high) if dash else int(low)
        if last - int(low) >= NODES_MAX:
            return
        for number in range(int(low), last + 1):
            yield f"{number:0{len(low)}d}"
