"""The papers that can be reproduced, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from dovetail.core.errors import InputError, nearest
from papers.frame.claim import Reproduction
from papers.frame.results import Results
from papers.frame.scope import Scope


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper: what it is called, which figures it covers, and how to find them anew."""

    title: str
    covers: str
    find: Callable[[Scope, Results], Reproduction]


PAPERS = {
    "a-srpt": "papers.a_srpt",
    "afs": "papers.afs",
    "gimbal": "papers.gimbal",
    "muri": "papers.muri",
    "sjf-bsbf": "papers.sjf_bsbf",
    "systems": "papers.systems",
}
"""Each module has a `paper`."""


def paper_called(name: str) -> Paper:
    """Returns the paper of a name. Raises InputError with the nearest one."""
    if name not in PAPERS:
        raise InputError(f"study '{name}'", "no such paper", nearest(name, PAPERS))
    paper: Paper = import_module(PAPERS[name]).paper
    return paper
