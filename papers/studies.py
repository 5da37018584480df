"""The papers that can be reproduced, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from dovetail.core.errors import InputError, nearest
from papers.finding import Findings
from papers.setting import Setting
from papers.trials import Trials


@dataclass(frozen=True, slots=True)
class Study:
    """One paper: what it is called, which figures it covers, and how to find them anew."""

    title: str
    covers: str
    find: Callable[[Setting, Trials], Findings]


STUDIES = {
    "a-srpt": "papers.a_srpt",
    "afs": "papers.afs",
    "gimbal": "papers.gimbal",
    "muri": "papers.muri",
    "sjf-bsbf": "papers.sjf_bsbf",
    "systems": "papers.systems",
}
"""Each module has a `study`."""


def study_called(name: str) -> Study:
    """Returns the study of a name. Raises InputError with the nearest one."""
    if name not in STUDIES:
        raise InputError(f"study '{name}'", "no such paper", nearest(name, STUDIES))
    study: Study = import_module(STUDIES[name]).study
    return study
