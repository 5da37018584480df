"""Runs a command as a user would and says what it cost, from the system's own accounting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 1800.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command cost: wall and CPU seconds of all its processes, peak memory of one."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    output: str


def dovetail(*words: str) -> Cost:
    """Runs `dovetail WORDS` as a process of its own; what it prints is kept."""
    return command([sys.executable, "-m", "dovetail", *words])


def command(words: list[str], cwd: Path | None = None) -> Cost:
    """Runs a command to its end. Exits with its error output when it fails."""
    began = time.perf_counter()
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    )
    assert child.stdout is not None and child.stderr is not None
    output = child.stdout.read()
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{errors}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def until(holds: Callable[[], bool], what: str, every_s: float = 0.2) -> float:
    """Waits until something holds; returns for how long. Raises TimeoutError."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > PATIENCE_S:
            raise TimeoutError(what)
        time.sleep(every_s)
    return time.monotonic() - began_s
