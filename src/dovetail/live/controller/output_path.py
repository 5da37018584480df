"""The file that a job's output goes to."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.wire.spec import JobSpec


def output_of(spec: JobSpec, number: int, folder: Path) -> Path:
    """Returns the log file of a job: its own choice with %j, %A, %a filled in, or in `folder`.

    Only numbers are filled in, and only in the file name: it stays in the folder that was checked.
    """
    if not spec.output:
        return folder / "output.log"
    filled = {
        "%%": "%",
        "%j": str(number),
        "%A": str(spec.array_of if spec.array_of >= 0 else number),
        "%a": str(max(spec.array, 0)),
    }
    path = Path(spec.output)
    return path.with_name(re.sub("%[%jAa]", lambda found: filled[found[0]], path.name))
