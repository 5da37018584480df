"""Which sizes elastic jobs have under a queue policy: as requested, at their peak, or left over.

`requested`: every job runs on what it asked for. `peak`: an elastic job runs on the fewest GPUs on
which it is fastest, or waits (AFS section 5.2, Figure 6). `left-over`: at the requested sizes;
GPUs that no waiting job could take go to elastic jobs that run (AFS section 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.core.job import Floats, Ints
from dovetail.core.order import Order
from dovetail.core.passes import Because, Keys, rank
from dovetail.core.plan import Draft
from dovetail.core.view import Running, View
from dovetail.mechanisms.elastic.altruistic import share_left_over
from dovetail.mechanisms.elastic.peak_size import (
    left_at_peak_s,
    serve_at_peak,
    waiting_left_at_peak_s,
)

REQUESTED, PEAK, LEFT_OVER = "requested", "peak", "left-over"
SIZES = (REQUESTED, PEAK, LEFT_OVER)

Key = Callable[[Floats, Floats | Ints], Floats]
"""Ranks jobs by the time left at a size, in seconds, and that size, in GPUs; smallest first."""


def check_sizes(sizes: str, allowed: Sequence[str] = SIZES) -> None:
    """Raises ValueError for sizes that a policy does not know."""
    if sizes not in allowed:
        raise ValueError(f"sizes is {' or '.join(allowed)}, not '{sizes}'")


def declared(words: frozenset[str], sizes: str, besides: str) -> frozenset[str]:
    """Returns what a policy declares, with one word more unless every size is as requested."""
    return words if sizes == REQUESTED else words | {besides}


def order_at_peak(key: Key) -> Order:
    """Returns the order of waiting jobs by what is left of them at their peak sizes."""

    def keys(view: View, jobs: Sequence[int]) -> list[float]:
        ranked: list[float] = key(*waiting_left_at_peak_s(view, jobs)).tolist()
        return ranked

    return Order(keys)


def rank_at(view: View, sizes: str, key: Key, bypass: str) -> tuple[Draft | None, Because]:
    """Ranks everybody by what is left at these sizes, and serves the first."""
    match sizes:
        case "peak":
            return serve_at_peak(view, _at_peak(view, key), bypass)
        case "left-over":
            requested = view.jobs.gpus
            return share_left_over(
                view, lambda running: key(running.left_s, requested[running.jobs]), bypass
            )
        case _:
            return rank(view, lambda running: key(running.left_s, running.gpus), bypass)


def _at_peak(view: View, key: Key) -> Keys:
    def keys(running: Running) -> Floats:
        return key(*left_at_peak_s(view, running.jobs, running.left_s))

    return keys
