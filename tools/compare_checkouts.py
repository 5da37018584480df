"""Shows that two checkouts of Dovetail give the same bytes: for moves and renames of all kinds.

    python -m tools.compare_checkouts BEFORE AFTER [--words] [--only NAME] [--save FOLDER]

BEFORE and AFTER are checkouts, each with its own `.venv`, or folders that `--save` wrote: who
compares several times with one checkout stores its results once (`FOLDER/before`). Every policy
runs on several traces; event logs, metrics, tables and printed text must be the same.
`--words` is for changes of text: numbers and fields of events stay, sentences may differ.
Exit code 0: the same. 1: something differs, and where it does first in each part. 2: bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.comparison_diff import PartResult, compare_folders
from tools.comparison_runs import (
    STORED,
    BadInput,
    Checkout,
    Part,
    check_code,
    failures,
    plan,
    policies_of,
    store,
)

INPUTS = "traces"
"""The part that makes the traces of all others; it always runs."""
SIDES = ("before", "after")


@dataclass(frozen=True)
class Stored:
    """Results of one checkout: the folder, the policies that ran, the parts that are there."""

    folder: Path
    policies: tuple[str, ...]
    parts: tuple[str, ...]
    commands: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares, prints one line for each part and returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = given.save or Path(scratch)
            return _compare(given, folder.resolve())
    except BadInput as error:
        print(f"compare_checkouts: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="compare_checkouts", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("before", type=Path, help="a checkout, or a folder of results")
    parser.add_argument("after", type=Path, help="a checkout, or a folder of results")
    parser.add_argument("--words", action="store_true", help="text may differ, numbers not")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="one part")
    parser.add_argument("--jobs", type=int, default=2, help="commands at once")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="store all results there")
    for side in SIDES:
        parser.add_argument(f"--{side}-python", type=Path, metavar="PATH")
    return parser


def _compare(given: argparse.Namespace, folder: Path) -> int:
    roots: dict[str, Path] = {"before": given.before.resolve(), "after": given.after.resolve()}
    pythons = {"before": given.before_python, "after": given.after_python}
    data = Path(os.environ.get("DOVETAIL_DATA", "../shared")).resolve()
    checkouts: dict[str, Checkout] = {}
    stored: dict[str, Stored] = {}
    for side, root in roots.items():
        if (root / STORED).is_file():
            stored[side] = _read(root)
        else:
            python = pythons[side] or root / ".venv" / "bin" / "python"
            checkouts[side] = Checkout(root, Path(os.path.abspath(python)))
            check_code(checkouts[side])
    policies = _policies(checkouts, stored)
    parts = _chosen(plan(policies, data), given.only)
    if checkouts and not (data / "traces").is_dir():
        raise BadInput(f"{data}: no public traces; set DOVETAIL_DATA to their folder")
    for side, checkout in checkouts.items():
        if (folder / side).exists():
            raise BadInput(f"{folder / side} exists; name another folder for --save")
        # Another hash seed on each side: an order that depends on it is a difference.
        hashes = {"DOVETAIL_DATA": str(data), "PYTHONHASHSEED": str(SIDES.index(side))}
        store(checkout, parts, folder / side, hashes, given.jobs)
        _write(folder / side, policies, parts)
        stored[side] = _read(folder / side)
    return _report(stored["before"], stored["after"], parts, given.words)


def _policies(checkouts: dict[str, Checkout], stored: dict[str, Stored]) -> tuple[str, ...]:
    """Returns the policies that run: those of the results that exist, or of BEFORE."""
    for side in SIDES:
        if side in stored:
            names = stored[side].policies
            break
    else:
        names = tuple(policies_of(checkouts["before"]))
    if "after" in checkouts:
        for name in policies_of(checkouts["after"]):
            if name not in names:
                print(f"not compared: the policy {name}, which only AFTER lists")
    return names


def _chosen(parts: tuple[Part, ...], only: Sequence[str]) -> tuple[Part, ...]:
    names = [part.name for part in parts]
    for name in only:
        if name not in names:
            raise BadInput(f"--only {name}: no such part; there are {', '.join(names)}")
    return tuple(part for part in parts if not only or part.name in (INPUTS, *only))


def _commands(parts: Sequence[Part]) -> dict[str, list[list[str]]]:
    """Returns the command lines of each part."""
    return {p.name: [list(words) for run in p.runs for words in run.commands] for p in parts}


def _write(folder: Path, policies: Sequence[str], parts: Sequence[Part]) -> None:
    content = {"policies": list(policies), "parts": _commands(parts)}
    (folder / STORED).write_text(json.dumps(content, indent=1) + "\n")


def _read(folder: Path) -> Stored:
    try:
        content = json.loads((folder / STORED).read_text())
        parts = content["parts"]
        return Stored(folder, tuple(content["policies"]), tuple(parts), json.dumps(parts))
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{folder / STORED} is damaged; store the results again") from None


def _report(before: Stored, after: Stored, parts: Sequence[Part], words: bool) -> int:
    for side in (before, after):
        recorded = json.loads(side.commands)
        for name, commands in _commands(parts).items():
            if recorded.get(name) != commands:
                raise BadInput(f"{side.folder} has no results of part {name}; store them again")
    broken = failures(parts, before.folder)
    if broken:
        raise BadInput(f"BEFORE: {broken[0]}")
    code = 0
    for part in parts:
        comparison = compare_folders(before.folder / part.name, after.folder / part.name, words)
        print(_line(part, comparison), flush=True)
        if comparison.first is not None:
            code = 1
            print(f"{part.name}/{comparison.first}")
            for sentence in failures([part], after.folder)[:1]:
                print(f"  AFTER: {sentence}")
    return code


def _line(part: Part, comparison: PartResult) -> str:
    counts = f"{comparison.files} files"
    if comparison.events >= 1_000_000:
        counts += f", {comparison.events / 1e6:.1f} M events"
    elif comparison.events:
        counts += f", {comparison.events:,} events"
    text = f"{part.name}: {part.title}, {counts}"
    if comparison.first is None:
        return f"same: {text}"
    return f"differ: {text}; {comparison.differing} files differ, the first here:"


if __name__ == "__main__":
    raise SystemExit(main())
