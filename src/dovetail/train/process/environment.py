"""The environment variables of a worker's process, and warnings in its output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.wire.worker import (
    CHECKPOINT,
    FOLDER,
    HOST,
    MEMORY,
    PROFILE_FILE,
    PROFILE_STEPS,
    REPORT,
    SOCKET,
    STALL,
    STALL_S,
    TOKEN,
    WORKER,
)

LOOPBACK = "127.0.0.1"
REPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """Identity and settings of this worker; defaults in a script started by hand.

    `socket` is that of the agent, "" without one; `worker` is "job/number". `folder` is None
    without a folder of the job, `checkpoint_s` if the script decides. With `dry_run_steps` the
    script only makes a dry run.
    """

    socket: str = ""
    worker: str = ""
    token: str = ""
    folder: Path | None = None
    host: str = LOOPBACK
    stall_s: float = STALL_S
    report_s: float = REPORT_S
    checkpoint_s: float | None = None
    memory_bytes: int = 0
    dry_run_steps: int = 0
    dry_run_file: Path | None = None

    @property
    def number(self) -> int:
        """Returns the worker's number in its job, 0 without an agent."""
        return int(self.worker.rpartition("/")[2]) if self.socket else 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> WorkerEnvironment:
        """Reads an environment. Raises ValueError for a number that is not one."""

        def number(name: str, default: float) -> float:
            try:
                return float(environment.get(name) or default)
            except ValueError:
                raise ValueError(f"{name} must be a number, not {environment[name]!r}") from None

        def place(name: str) -> Path | None:
            return Path(environment[name]) if environment.get(name) else None

        if environment.get(PROFILE_STEPS):
            return cls(
                memory_bytes=int(number(MEMORY, 0)),
                dry_run_steps=max(1, int(number(PROFILE_STEPS, 1))),
                dry_run_file=place(PROFILE_FILE),
            )
        return cls(
            socket=environment.get(SOCKET, ""),
            worker=environment.get(WORKER, ""),
            token=environment.get(TOKEN, ""),
            folder=place(FOLDER),
            host=environment.get(HOST) or LOOPBACK,
            stall_s=number(STALL, STALL_S),
            report_s=number(REPORT, REPORT_S),
            checkpoint_s=number(CHECKPOINT, 0) or None,
            memory_bytes=int(number(MEMORY, 0)),
        )


def hide_secret() -> None:
    """Removes the worker's token from the environment: child processes must not inherit it."""
    os.environ.pop(TOKEN, None)


def warn(message: str) -> None:
    """Prints a warning to the job's own log."""
    sys.stderr.write(f"dovetail: {message}\n")
