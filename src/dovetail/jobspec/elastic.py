"""What a job must be so that its program can be restarted to change its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import JobDraft
from dovetail.wire.spec_faults import SCRIPT_BYTES_MAX
from dovetail.wire.submission import Submission
from dovetail.wire.torchrun import fixed_sizes, is_torchrun

STARTERS = {
    "accelerate": "accelerate launch",
    **{name: name for name in ("deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "ray")},
}
"""Commands that start processes by themselves, in numbers and places that they choose."""
_IMPORT = re.compile(rb"^[ \t]*(?:import|from)[ \t]+dovetail\b", re.MULTILINE)


def check_elastic(draft: JobDraft, workdir: Path, *, is_range: bool) -> None:
    """Raises InputError if a job with `elastic` cannot be restarted on another number of GPUs."""
    if not draft.value("elastic", 0.0):
        return
    where, called = draft.place("elastic"), draft.called("elastic")
    if draft.value("trains", False):
        raise InputError(
            where,
            f"{called}: a program that uses dovetail.train is resized without a restart",
            f"remove {called}, or `trains` if it only has checkpoints of its own",
        )
    if not is_range:
        mend = "as in 1..4; a program of a fixed size needs no such field"
        raise InputError(where, f"{called}: it needs a range of GPUs", mend)
    if "ntasks" in draft.entries:
        raise InputError(
            draft.place("ntasks"),
            f"{draft.called('ntasks')}: an elastic program is started on each GPU, or once on each "
            "node if it is torchrun or a batch script",
            f"remove {draft.called('ntasks')}",
        )
    _check_command(draft.value("command", ("",)), workdir, where, called)


def _check_command(command: Sequence[str], workdir: Path, where: str, called: str) -> None:
    first = Path(command[0]).name if command else ""
    if first in STARTERS:
        raise InputError(
            where,
            f"{called}: {STARTERS[first]} starts processes by itself, as many as it is told",
            "write `torchrun train.py`, or `python train.py`, which is started on each GPU: both "
            "have torchrun's variables, which accelerate and DeepSpeed read too",
        )
    for word in command:
        if word.endswith(".py") and _IMPORT.search(_beginning(workdir / word)):
            raise InputError(
                where,
                f"{called}: {word} uses dovetail.train, which is resized without a restart",
                f"remove {called}",
            )


def _beginning(path: Path) -> bytes:
    """Returns the first part of a file, nothing if it is not there or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(SCRIPT_BYTES_MAX)
    except OSError:
        return b""


def elastic_notes(submissions: Sequence[Submission]) -> Iterator[str]:
    """Yields what may surprise the owners of programs that are restarted."""
    for spec in (submission.spec for submission in submissions):
        fixed = fixed_sizes(spec.command) if spec.restarts and is_torchrun(spec.command) else ()
        if fixed:
            yield (
                f"job '{spec.name}': torchrun gets its sizes and addresses anew at each start, in "
                f"place of {', '.join(fixed)}"
            )
