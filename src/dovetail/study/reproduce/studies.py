"""The papers that can be reproduced, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from dovetail.core.errors import InputError, nearest
from dovetail.study.reproduce.finding import Findings
from dovetail.study.reproduce.setting import Setting
from dovetail.study.reproduce.trials import Trials


@dataclass(frozen=True, slots=True)
class Study:
    """One paper: what it is called, which figures it covers, and how to find them anew."""

    title: str
    covers: str
    find: Callable[[Setting, Trials], Findings]


STUDIES = {
    "a-srpt": "dovetail.study.reproduce.a_srpt",
    "afs": "dovetail.study.reproduce.afs",
    "gimbal": "dovetail.study.reproduce.gimbal",
    "muri": "dovetail.study.reproduce.muri",
    "sjf-bsbf": "dovetail.study.reproduce.sjf_bsbf",
    "systems": "dovetail.study.reproduce.systems",
}
"""Each module has a `study`."""


def study_called(name: str) -> Study:
    """Returns the study of a name. Raises InputError with the nearest one."""
    if name not in STUDIES:
        raise InputError(f"study '{name}'", "no such paper", nearest(name, STUDIES))
    study: Study = import_module(STUDIES[name]).study
    return study
