"""Where the traces are, and how much effort to make."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.errors import InputError, nearest

EFFORTS = ("quick", "default", "full")
VARIABLE = "DOVETAIL_DATA"
USUAL = Path("../shared")


@dataclass(frozen=True, slots=True)
class Scope:
    """The data and the effort: `data` is the folder of traces and profiles, or None.

    `seeds` is the number of random assignments, 0 for what the effort allows.
    """

    data: Path | None
    effort: str = "default"
    seeds: int = 0

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise InputError("effort", f"unknown '{self.effort}'", nearest(self.effort, EFFORTS))
        if self.seeds < 0:
            raise InputError("--seeds", "it must be 0 (as the effort allows) or more")

    def chosen(self, quick: int, default: int, full: int) -> int:
        """Returns the number for the effort."""
        return {"quick": quick, "default": default, "full": full}[self.effort]

    def has(self, *names: str) -> bool:
        """Returns whether all these files or folders are in the data folder."""
        return self.data is not None and all((self.data / name).exists() for name in names)

    def path(self, name: str) -> Path:
        """Returns a file of the data folder."""
        assert self.data is not None
        return self.data / name


def find_data(given: Path | None) -> Path | None:
    """Returns the data folder: of --data, of the environment, or the usual one if it exists.

    Raises InputError for a named folder that does not exist.
    """
    for place, origin in ((given, "--data"), (os.environ.get(VARIABLE), VARIABLE)):
        if place:
            if not Path(place).is_dir():
                raise InputError(origin, f"'{place}' is no folder")
            return Path(place)
    return USUAL if USUAL.is_dir() else None
