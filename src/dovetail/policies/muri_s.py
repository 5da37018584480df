"""Muri-S: jobs take turns on the resources of the same GPUs; least service left first.

At every tick jobs are taken in order of remaining solo time times GPUs, as many as full groups
on all GPUs could serve. Jobs of equal size are matched, round by round, so that
the resources are idle least, and pairs are merged only while the demand exceeds the cluster.
Groups run in order of their best job; a group that finds no room waits.

Source: Muri (SIGCOMM 2022) sections 4.1 and 4.2; ALGORITHMS section 4. Knows: length, stages,
memory. Stops running jobs: yes, at ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.core.job import Floats
from dovetail.core.order import Order
from dovetail.core.policy import register
from dovetail.core.view import Running, View
from dovetail.mechanisms.interleaving.muri_pass import DIGITS, InterleavedPolicy


def _waiting(view: View, jobs: Sequence[int]) -> list[float]:
    gpus = view.jobs.gpus
    left_s = view.progress.left_s(jobs)
    return [round(s * float(gpus[j]), DIGITS) for s, j in zip(left_s, jobs, strict=True)]


def _running(running: Running) -> Floats:
    return np.round(running.left_s * running.gpus, DIGITS)


@register("muri-s")
@dataclass(frozen=True, slots=True)
class MuriS(InterleavedPolicy):
    """Interleaving groups by Blossom matching, shortest remaining service first; preemptive."""

    knows: ClassVar[frozenset[str]] = frozenset({"length", "stages", "memory"})
    order: ClassVar[Order] = Order(_waiting)
    running_keys: ClassVar[Callable[[Running], Floats]] = _running
