"""A paper as its experiment, its claims and what they are shown with; and all papers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Generic, TypeVar

from dovetail.core.errors import InputError, nearest
from papers.frame.claim import Claim, Plot, Reproduction, Table
from papers.frame.experiment import Experiment, Playable, Results
from papers.frame.scope import Scope

E = TypeVar("E", bound=Experiment)


@dataclass(frozen=True, slots=True)
class Paper(Generic[E]):
    """A paper: what it is called, which figures it covers, and how to make them from its runs.

    `runs` are played together, so that one bar shows all of them.
    """

    title: str
    covers: str
    experiment: Callable[[Scope, Results], E]
    runs: Callable[[E], Iterable[Playable]]
    claims: Callable[[E], Iterable[Claim]]
    plots: Callable[[E], Iterable[Plot]]
    notes: Callable[[E], Iterable[str]]
    tables: Callable[[E], Iterable[Table]] = lambda _: ()

    def reproduce(self, scope: Scope, results: Results) -> Reproduction:
        """Returns all tables and figures anew."""
        experiment = self.experiment(scope, results)
        results.play(list(self.runs(experiment)))
        return Reproduction(
            self.title,
            self.covers,
            tuple(self.claims(experiment)),
            tuple(self.plots(experiment)),
            tuple(self.notes(experiment)),
            tuple(self.tables(experiment)),
        )


PAPERS = {
    "a-srpt": "papers.a_srpt",
    "afs": "papers.afs",
    "gimbal": "papers.gimbal",
    "muri": "papers.muri",
    "server-filling": "papers.server_filling",
    "sia": "papers.sia",
    "sjf-bsbf": "papers.sjf_bsbf",
    "systems": "papers.systems",
}
"""Each module has a `paper`."""


def paper_called(name: str) -> Paper[Experiment]:
    """Returns the paper of a name. Raises InputError with the nearest one."""
    if name not in PAPERS:
        raise InputError(f"study '{name}'", "no such paper", nearest(name, PAPERS))
    paper: Paper[Experiment] = import_module(PAPERS[name]).paper
    return paper
