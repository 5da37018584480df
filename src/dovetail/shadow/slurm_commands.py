"""Where Slurm's answers come from: its commands on this machine, or files with their output."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from dovetail.core.errors import InputError
from dovetail.shadow.snapshot import Snapshot, snapshot_of

PATIENCE_S = 60.0
"""How long a command of Slurm may take; a busy slurmctld answers late, not never."""
INSTALL = "run this where Slurm's commands are, or give files with --squeue and --sinfo"


class SlurmSource(Protocol):
    """Answers about a cluster, as Slurm's commands print them."""

    def snapshot(self, now_s: float) -> Snapshot:
        """Returns the cluster as it is. Raises InputError."""

    def accounting(self, since_s: float) -> str:
        """Returns the JSON of sacct since a time. Raises InputError."""


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """Asks squeue, sinfo and sacct of this machine."""

    def snapshot(self, now_s: float) -> Snapshot:
        """Returns the cluster as it is. Raises InputError."""
        return snapshot_of(answer("squeue", "--json"), _nodes(), time_s=now_s)

    def accounting(self, since_s: float) -> str:
        """Returns the JSON of sacct since a time. Raises InputError.

        With every attempt of requeued jobs, and of all users that we may see.
        """
        since = datetime.fromtimestamp(since_s).strftime("%Y-%m-%dT%H:%M:%S")
        return answer("sacct", "--json", "--allusers", "--duplicates", "--starttime", since)


def _nodes() -> str:
    """Returns the nodes; from scontrol, which has --json since 23.02, because it tells GPUs in use.

    Without these nobody sees the GPUs of jobs that Slurm does not show. sinfo of 22.05 has them.
    """
    try:
        return answer("scontrol", "show", "nodes", "--json")
    except InputError:
        return answer("sinfo", "--json")


@dataclass(frozen=True, slots=True)
class SlurmFiles:
    """Reads files that have the output of the commands."""

    squeue: Path
    sinfo: Path
    sacct: Path | None = None

    def snapshot(self, now_s: float) -> Snapshot:
        """Returns the cluster as it was when the files were written. Raises InputError."""
        return snapshot_of(
            read(self.squeue),
            read(self.sinfo),
            squeue_at=str(self.squeue),
            sinfo_at=str(self.sinfo),
        )

    def accounting(self, since_s: float) -> str:
        """Returns the file of sacct. Raises InputError."""
        if self.sacct is None:
            raise InputError("--sacct", "is missing", "give a file with the output of sacct --json")
        return read(self.sacct)


def read(path: Path) -> str:
    """Returns the text of a file. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(
            str(path), "is not UTF-8 text", "it must be the output of --json"
        ) from None


def answer(*command: str) -> str:
    """Returns the output of one of Slurm's commands. Raises InputError with its own words."""
    name = command[0]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise InputError(name, "there is no such command here", INSTALL) from None
    except PermissionError:
        raise InputError(name, "you may not run it", INSTALL) from None
    except subprocess.TimeoutExpired:
        raise InputError(name, f"gave no answer in {PATIENCE_S:g} s", "is slurmctld up?") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if any("unrecognized option" in line or "invalid option" in line for line in said):
        raise InputError(name, "it has no --json", "Slurm 22.05 or later is needed")
    # slurmctld's absence is said on the last of several lines.
    raise InputError(name, said[-1] if said else f"exit code {done.returncode}", "is Slurm up?")
