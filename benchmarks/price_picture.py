"""The picture of how `dovetail` sells GPUs: three jobs, eight GPUs, one price.

Above what each job makes of so many GPUs, and what it gets; below the gains per GPU in the order
of the sale, as a demand curve. Drawn by the functions that the policy calls.
Run: python -m benchmarks.price_picture -o docs/images
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dovetail.algorithms.gpu_price import Sale, hull_jumps, sell
from dovetail.core.job import Floats
from dovetail.report.order import PALETTE
from dovetail.report.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GPUS = 8
JOBS = {
    "A, a pipeline of 4 stages": (0, 1.0, 1.1, 1.2, 3.4, 3.5, 3.6, 3.7, 4.6),
    "B, data-parallel": (0, 1.3, 2.3, 3.0, 3.4, 3.6, 3.7, 3.75, 3.8),
    "C, long, so of less weight": (0, 0.6, 1.1, 1.5, 1.8, 2.0, 2.1, 2.15, 2.2),
}
"""The value of 0, 1, 2, ... GPUs to each job: its weight times its speed."""


def draw_values(axes: Axes, values: Floats, sale: Sale) -> None:
    """Draws the value of each number of GPUs, the hull of the sale, and what each job gets."""
    jumps = hull_jumps(values)
    for row, name in enumerate(JOBS):
        corners = np.append(0, np.cumsum(jumps.size[jumps.buyer == row]))
        (line,) = axes.plot(corners, values[row, corners], label=name, color=PALETTE[row])
        counts = np.arange(len(values[row]))
        axes.plot(counts, values[row], ".", color=line.get_color())
        has = int(sale.gpus[row])
        axes.plot(has, values[row, has], "o", color=line.get_color(), fillstyle="none", ms=11)
    axes.set_xlabel("GPUs (ring: what the job gets)")
    axes.set_ylabel("value: weight x speed")
    axes.legend(frameon=False)


def draw_sale(axes: Axes, values: Floats, sale: Sale) -> None:
    """Draws the gain per GPU of each jump, the largest first, and the price."""
    jumps = hull_jumps(values)
    at = 0
    for jump in np.argsort(-jumps.slope, kind="stable"):
        size, buyer = int(jumps.size[jump]), int(jumps.buyer[jump])
        slope = float(jumps.slope[jump])
        axes.bar(at, slope, size, align="edge", color=PALETTE[buyer], edgecolor="white")
        axes.text(at + size / 2, slope, list(JOBS)[buyer][0], ha="center", va="bottom")
        at += size
        if at >= 2 * GPUS:
            break
    axes.axvline(GPUS, color="black", lw=1)
    axes.axhline(sale.price, color="black", lw=1, ls="dotted")
    axes.text(2 * GPUS, sale.price, "price ", ha="right", va="bottom")
    axes.text(GPUS, axes.get_ylim()[1], f" {GPUS} GPUs", va="top")
    axes.set_xlim(0, 2 * GPUS)
    axes.set_xlabel("GPUs, in the order of the sale")
    axes.set_ylabel("gain per GPU")


def main() -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.price_picture")
    parser.add_argument("-o", "--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    values = np.array(list(JOBS.values()), dtype=float)
    sale = sell(values, GPUS)
    with canvas.house_style():
        figure, (upper, lower) = canvas.sheet(5.4, 2)
        draw_values(upper, values, sale)
        draw_sale(lower, values, sale)
        canvas.save(figure, out / "dovetail-price")
    print(dict(zip(JOBS, sale.gpus.tolist(), strict=True)), f"price {sale.price:.2f}")


if __name__ == "__main__":
    main()
