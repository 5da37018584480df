"""The file that a job's output goes to."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.wire.spec import JobSpec
from dovetail.wire.spec_faults import FILLED_IN


def output_of(spec: JobSpec, number: int, folder: Path) -> Path:
    """Returns the log file of a job: its own choice with %j, %A, %a, %u filled in, or in `folder`.

    They are filled in only in the file name, and none is a path, so the file stays in the folder
    that was checked. `%4j` is padded with zeros; `%J` is the job too, as for Slurm's batch scripts.
    """
    if not spec.output:
        return folder / "output.log"
    numbers = {
        "j": number,
        "J": number,
        "A": spec.array_of if spec.array_of >= 0 else number,
        "a": max(spec.array, 0),
    }

    def filled(sign: re.Match[str]) -> str:
        if sign[2]:
            return str(numbers[sign[2]]).zfill(int(sign[1] or 0))
        return "%" if sign[0] == "%%" else spec.user.replace("/", "_")

    path = Path(spec.output)
    return path.with_name(FILLED_IN.sub(filled, path.name))
