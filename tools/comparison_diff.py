"""Where two folders of results differ first: file, line, and what stands there on both sides.

Files are compared byte by byte. Where they differ, each line is compared again behind the masks
below; nothing else is left out. With `words=True` text may differ too, and numbers may not.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

EXCERPT = 60
NUMBER = re.compile(r"(?:(?<![\w.])[-+])?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Mask:
    """A pattern whose match says nothing about behaviour, and why. `files` are suffixes."""

    name: str
    pattern: re.Pattern[str]
    files: tuple[str, ...]
    why: str


JSON_FILES = (".json", ".jsonl", ".stdout")
MASKS = (
    Mask(
        "release",
        re.compile(r'(?<="version": )"[^"]*"'),
        JSON_FILES,
        "the release of Dovetail that ran; the version of the log's format, a number, stays",
    ),
    Mask(
        "wall clock",
        re.compile(r'(?<="wall_s": )[-+.\de]+|(?<="decision_p99_ms": )[-+.\de]+'),
        JSON_FILES,
        "how long the simulator and its decisions took on this machine",
    ),
    Mask(
        "wall clock, page",
        re.compile(r'(?<=>wall</th><td data-sort="">)[^<]*|(?<=p99 ms</th><td data-sort="">)[^<]*'),
        (".html",),
        "the same two values in the table of a report",
    ),
)
"""The path of a checkout is masked as well, as CHECKOUT, where `comparison_runs` stores output."""

PICTURES = (".svg", ".png", ".html", ".gz")
"""With `words=True` these are not compared: the words are drawn, and change all coordinates."""
TEXT_FIELDS = {
    "policy": "spelled with names of parameters",
    "baseline": "a policy",
    "manifest.name": "a policy",
    "reasons.code": "why a job waits",
    "refused.why": "why a plan was refused",
    "policies.knows": "a list for the reader",
    "policies.powers": "a list for the reader",
    "notes": "sentences for the reader",
    "cases.case": "title of a row of the table of other simulators",
    "cases.why": "why a row differs",
    "cases.command": "names a policy",
}
"""Fields of JSON whose text may change with `words=True`: the ends of paths, and what they are."""
TEXT_COLUMNS = ("policy", "knows", "powers")
"""Columns of CSV whose text may change with `words=True`."""
POLICY_KEYS = "runs"
"""The object of JSON whose keys are policies."""


@dataclass(frozen=True)
class FirstDifference:
    """The first place where two files differ; line 0 where it is the file as a whole."""

    file: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        """Returns the place and, below it, both sides around the first other character."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        start = _common(self.before, self.after)
        sides = (_excerpt(text, start) for text in (self.before, self.after))
        return "{}\n  before: {}\n  after:  {}".format(place, *sides)


@dataclass(frozen=True)
class PartResult:
    """What a part holds and how it differs."""

    files: int
    events: int
    differing: int
    first: FirstDifference | None


def compare_folders(before: Path, after: Path, words: bool = False) -> PartResult:
    """Compares all files of two folders, event logs first: they show the first other decision."""
    paths = {str(p.relative_to(f)) for f in (before, after) for p in _files(f)}
    names = sorted(paths, key=lambda name: (not name.endswith("events.jsonl"), name))
    differences = []
    events = 0
    for name in names:
        events += _events(before / name)
        difference = compare_files(before, after, name, words)
        if difference is not None:
            differences.append(difference)
    return PartResult(len(names), events, len(differences), next(iter(differences), None))


def compare_files(
    before: Path, after: Path, name: str, words: bool = False
) -> FirstDifference | None:
    """Returns the first difference of one file, or None."""
    left, right = before / name, after / name
    if not left.exists() or not right.exists():
        sides = ("exists" if side.exists() else "no such file" for side in (left, right))
        return FirstDifference(name, 0, *sides)
    contents = left.read_bytes(), right.read_bytes()
    if contents[0] == contents[1]:
        return None
    if words and name.endswith(PICTURES):
        return None
    try:
        texts = contents[0].decode(), contents[1].decode()
    except UnicodeDecodeError:
        return FirstDifference(
            name, 0, f"{len(contents[0])} bytes", f"{len(contents[1])} other bytes"
        )
    pieces = (_numbers(text, name) if words else _lines(text, name) for text in texts)
    end = Piece(0, "end of file")
    for one, other in zip_longest(*pieces, fillvalue=end):
        if one.text != other.text:
            return FirstDifference(name, one.line or other.line, one.text, other.text)
    return None


@dataclass(frozen=True)
class Piece:
    """What is compared as one: a masked line, a field or a number, and its line."""

    line: int
    text: str


def masked(line: str, name: str) -> str:
    """Returns a line of the file `name` with `"<mask>"` where a mask matches."""
    for mask in MASKS:
        if name.endswith(mask.files):
            line = mask.pattern.sub(f'"<{mask.name}>"', line)
    return line


def _lines(text: str, name: str) -> Iterator[Piece]:
    for number, line in enumerate(text.split("\n"), start=1):
        yield Piece(number, masked(line, name))


def _numbers(text: str, name: str) -> Iterator[Piece]:
    """Yields the pieces of a file that a change of words must leave as they are."""
    text = masked(text, name)
    lines = text.splitlines()
    if name.endswith(".jsonl"):
        for number, line in enumerate(lines, start=1):
            yield from (Piece(number, field) for field, _ in _fields(line))
    elif name.endswith(".csv"):
        yield from _cells(lines)
    elif name.endswith(".json") or text.startswith("{"):
        position = 0
        for field, token in _fields(text):
            position = max(text.find(token, position), position)
            yield Piece(text.count("\n", 0, position) + 1, field)
    else:
        for number, line in enumerate(lines, start=1):
            yield from (Piece(number, match) for match in NUMBER.findall(line))


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Yields `path: value` of each field of JSON text, and the value as the text spells it."""
    try:
        document = json.loads(text)
    except ValueError:
        yield text, text
        return
    kind = document.get("e", "") if isinstance(document, dict) else ""
    yield from _walk(document, kind if isinstance(kind, str) else "")


def _walk(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            shown = _figures(key) if path.rpartition(".")[2] == POLICY_KEYS else key
            yield from _walk(inner, f"{path}.{shown}" if path else shown)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _walk(inner, path)
    elif isinstance(value, str) and f".{path}".endswith(tuple(f".{f}" for f in TEXT_FIELDS)):
        yield f"{path}: {_figures(value)}", json.dumps(value)
    else:
        yield f"{path}: {json.dumps(value)}", json.dumps(value)


def _cells(lines: list[str]) -> Iterator[Piece]:
    rows = csv.reader(lines)
    head = next(rows, [])
    yield Piece(1, ",".join(head))
    for row in rows:
        for column, cell in zip_longest(head, row, fillvalue=""):
            shown = _figures(cell) if column in TEXT_COLUMNS else cell
            yield Piece(rows.line_num, f"{column}: {shown}")


def _figures(text: str) -> str:
    return "text with " + (" ".join(NUMBER.findall(text)) or "no number")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _events(path: Path) -> int:
    if path.name != "events.jsonl" or not path.exists():
        return 0
    return path.read_bytes().count(b"\n")


def _common(one: str, other: str) -> int:
    """Returns how many characters are the same at the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _excerpt(text: str, position: int) -> str:
    start, end = max(0, position - EXCERPT), position + EXCERPT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
