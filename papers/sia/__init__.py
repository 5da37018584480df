"""The paper Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling (SOSP 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from papers.frame.claim import Claim, Plot
from papers.frame.drawing import Bars, bar_chart
from papers.frame.paper import Paper
from papers.sia import claims as figures
from papers.sia.experiments import POLLUX, SIA, SiaExperiment
from papers.sia.published import TABLE_3
from papers.sia.workloads import TRACES


def _claims(planned: SiaExperiment) -> Iterator[Claim]:
    yield from figures.table_3(planned)
    yield from figures.table_4(planned)
    yield from figures.restarts(planned)


def _plots(planned: SiaExperiment) -> list[Plot]:
    if planned.is_quick:
        return []
    bars: Bars = {
        "sia": [planned.hours(planned.mixed(SIA, s)) for s in TRACES],
        "sia (paper)": [TABLE_3[s, "sia"].jct for s in TRACES],
        "pollux": [planned.hours(planned.mixed(POLLUX, s)) for s in TRACES],
        "pollux (paper)": [TABLE_3[s, "pollux"].jct for s in TRACES],
    }
    draw = partial(bar_chart, list(TRACES.values()), bars, "mean JCT (h)")
    return [Plot("table-3", "Table 3: mean JCT", "Six T4, three RTX and two A100 nodes.", draw)]


def _notes(planned: SiaExperiment) -> Iterator[str]:
    played = ", ".join(f"{name}: 1 to {len(planned.numbers_of(s))}" for s, name in TRACES.items())
    yield (
        f"Workloads of the authors ({played}) by their measured tables, with the factors by which "
        "they found real jobs slower, and the restart of each model (siasosp23/artifacts, aaf7a0d, "
        "no licence stated). A first start costs 50 s, that of most jobs."
    )
    yield (
        "Sia is told the speed on every type and number of GPUs (the paper's oracle), theirs "
        "starts a job blind and learns. Pollux sees half nodes of one size and the speeds of T4; "
        "its jobs stay on one type, where theirs are cut to one after the search. Gavel with "
        "tuned jobs is not here: ours knows one type of GPU and other goals."
    )


paper = Paper(
    "Sia: heterogeneity-aware, goodput-optimised scheduling (SOSP 2023)",
    "Tables 3 and 4 for Sia and Pollux; bands are 25 %.",
    SiaExperiment,
    SiaExperiment.runs,
    _claims,
    _plots,
    _notes,
)
