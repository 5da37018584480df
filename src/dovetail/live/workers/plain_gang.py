"""A gang of ordinary processes: it starts whole, meets once, and is done when each has exited well.

It knows no training protocol: what its processes do is seen by their starts and ends alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import WorkerEnded

if TYPE_CHECKING:
    from dovetail.live.workers.gang import Gang


def step_plain(
    gang: Gang, wanted: Desired, now: float, is_free: Callable[[int, int], bool]
) -> None:
    """Starts the processes that are missing, once the GPUs of each are free."""
    if not gang.workers and not gang.complete and gang.target is None:
        if all(is_free(m.node, m.gpu) for m in wanted.members):
            gang.muster(wanted, wanted.numbers, now)
            gang.new_generation(wanted.numbers, wanted.manner, now)
        return
    if gang.target is not None and gang.formed < gang.generation:
        # Ranks whose order went no further than a controller that is gone.
        there = gang.workers.keys() | gang.complete | gang.gone
        held = {m.worker for m in wanted.members if not is_free(m.node, m.gpu)}
        gang.muster(wanted, [n for n in wanted.numbers if n not in there | held], now)
    # Ranks that are started later must find the others where those were told to meet.
    if gang.formed == gang.generation and gang.update_shares(wanted):
        gang.new_generation(wanted.numbers, wanted.manner, now)
        gang.formed = gang.generation
    present = [gang.workers.get(n) for n in wanted.numbers if n not in gang.complete]
    if gang.formed < gang.generation and all(w is not None and w.alive for w in present):
        gang.form(gang.generation)


def did_its_part(gang: Gang, said: WorkerEnded) -> bool:
    """True if a process that was to leave had ended well by itself just before."""
    well = not gang.elastic and said.exit_code == 0 and said.worker in gang.group
    return well and (bool(gang.complete) or not said.asked)
