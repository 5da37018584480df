"""Runs the command line inside the test and gives what a user would see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dovetail.cli.main import run


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Returns standard output, which must be one JSON object."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Shell:
    """Calls commands; `ok` demands exit code 0, `refused` demands 2 and one line."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        run: Callable[[list[str]], int] = run,
        program: str = "dovetail",
    ) -> None:
        self._capsys = capsys
        self._run = run
        self._program = program

    def __call__(self, *words: object) -> Said:
        """Runs one command line."""
        self._capsys.readouterr()
        code = self._run([str(w) for w in words])
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)

    def ok(self, *words: object) -> Said:
        """Runs a command that must succeed."""
        said = self(*words)
        assert said.code == 0, said.err
        return said

    def refused(self, *words: object) -> str:
        """Runs a command that must be refused, and returns the one line it says."""
        said = self(*words)
        assert (said.code, said.out) == (2, ""), said
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        assert lines[0].startswith(f"{self._program}: ")
        return lines[0]
