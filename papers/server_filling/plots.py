"""The picture of the ServerFilling paper: response times over one fast server, by load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from papers.frame.claim import Plot
from papers.frame.drawing import Line, draw_lines, label, one_panel
from papers.server_filling.experiments import SETTINGS, ServerFillingExperiment
from papers.server_filling.published import FIRST, MEANS, ONE, SRPT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def by_load(lines: list[Line]) -> Figure:
    """Draws each policy's ratio by load."""
    with one_panel() as (_, axes):
        draw_lines(axes, lines, "o", 3.5)
        axes.set_ylim(bottom=0)
        label(axes, "load", "mean response over SRPT-1")
        axes.legend(fontsize=8)
        return axes.figure  # type: ignore[return-value]


def plots(planned: ServerFillingExperiment) -> list[Plot]:
    """Returns a picture for each setting, ours beside the authors' points."""
    made = []
    for sizes in SETTINGS:
        lines: list[Line] = []
        for policy in (SRPT, FIRST):
            ours = [planned.over_one(planned.run(policy, sizes, x)) for x in planned.loads]
            known = [MEANS[sizes, x][policy] / MEANS[sizes, x][ONE] for x in planned.loads]
            lines += [(policy, planned.loads, ours), (f"{policy} (paper)", planned.loads, known)]
        title = f"Figure 4: {sizes} sizes"
        made.append(Plot(f"figure-4-{sizes}", title, "Eight servers.", partial(by_load, lines)))
    return made
