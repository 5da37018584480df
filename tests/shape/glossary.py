"""The words that class names of `live/` and `train/` may be made of."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
ENDINGS = ("s", "es", "d", "ed", "ing", "er", "r", "or")


def words_of(name: str) -> list[str]:
    """Returns the words of a class name in lower case: `GpuUsage` is `gpu`, `usage`."""
    return [word.lower() for word in WORD.findall(name)]


def is_form_of(word: str, known: set[str]) -> bool:
    """Returns whether a word is known, or a regular form of a known one: `stored` of `store`."""
    stems = {word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)}
    doubled = {stem[:-1] for stem in stems if stem[-1:] == stem[-2:-1]}
    silent = {f"{stem}e" for stem in stems} | {f"{stem.removesuffix('i')}y" for stem in stems}
    return bool(({word} | stems | doubled | silent) & known)


def glossary_words() -> set[str]:
    """Returns the words of the bold terms of docs/glossary.md."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return {word.lower() for term in re.findall(r"\*\*(.+?)\*\*", text) for word in term.split()}


def plain_words() -> set[str]:
    """Returns words that need no explanation to somebody who knows Python and clusters."""
    return set((Path(__file__).parent / "plain_words.txt").read_text(encoding="utf-8").split())
