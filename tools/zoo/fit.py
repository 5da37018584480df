"""Refits the model zoo from the public measurements: the only writer of `profiles/`.

`python -m tools.zoo fit --data DIR` runs it. Times come from the data, parameter counts and
memory from `profiles/architectures.toml`; only derived parameters are written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.physics.zoo.profile_file import ProfileSet
from tools.zoo.afs import fit_afs
from tools.zoo.elasticflow import fit_elasticflow
from tools.zoo.muri import fit_muri
from tools.zoo.pipeline import fit_pipeline
from tools.zoo.pollux import fit_pollux

FITS: dict[str, Callable[[Path], ProfileSet]] = {
    "pollux": fit_pollux,
    "afs": fit_afs,
    "muri": fit_muri,
    "elasticflow": fit_elasticflow,
    "asrpt": fit_pipeline,
}
"""How each committed profile set is made from the data."""


def refit(family: str, data: Path) -> ProfileSet:
    """Returns a profile set made anew from the data. Raises InputError."""
    if family not in FITS:
        raise InputError(f"family '{family}'", "is unknown", f"one of {', '.join(FITS)}")
    try:
        return FITS[family](data)
    except (KeyError, ValueError) as trouble:
        raise InputError(
            str(data), f"the data of {family} cannot be used: {trouble!r}"
        ) from trouble
