"""The paper Optimal Scheduling in the Multiserver-job Model under Heavy Traffic (ServerFilling)."""

from __future__ import annotations

from collections.abc import Iterator

from papers.frame.claim import Claim
from papers.frame.paper import Paper
from papers.server_filling import claims as figures
from papers.server_filling.experiments import ServerFillingExperiment
from papers.server_filling.plots import plots


def _claims(planned: ServerFillingExperiment) -> Iterator[Claim]:
    yield from figures.figure_4(planned)
    yield from figures.towards_one(planned)
    yield from figures.greedy(planned)
    yield from figures.without_lengths(planned)


def _notes(planned: ServerFillingExperiment) -> Iterator[str]:
    yield (
        f"{planned.jobs} jobs and {planned.seeds} seeds for each load, drawn anew; the authors' "
        "plots are means over one to a hundred million. SRPT-1 is SRTF on one server eight times "
        "as fast, on the same jobs, so that what is drawn cancels in the ratio."
    )
    yield (
        "Published numbers are those in the authors' program (github.com/isaacg1/msj-simulator, "
        "77634e4), which plots them. MaxWeight and MostServersFirst are not here."
    )


paper = Paper(
    "ServerFilling: multiserver jobs under heavy traffic (SIGMETRICS 2023)",
    "The ratios to one fast server by load, both settings; bands 10 % (exponential) and 15 % "
    "(hyperexponential) for ServerFilling-SRPT, twice that for ServerFilling.",
    ServerFillingExperiment,
    ServerFillingExperiment.runs,
    _claims,
    plots,
    _notes,
)
