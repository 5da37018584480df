"""Muri-L: jobs take turns on the resources of the same GPUs; least attained service first.

At every tick jobs are taken in order of time run so far times GPUs, as many as full groups
on all GPUs could serve. Jobs of equal size are matched, round by round, so that
the resources are idle least, and pairs are merged only while the demand exceeds the cluster.
Groups run in order of their best job; a group that finds no room waits.

Source: Muri (SIGCOMM 2022) sections 4.1 and 4.2; ALGORITHMS section 4. Knows: attained
service, stages, memory. Stops running jobs: yes, at ticks.
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
    return [round(s, DIGITS) for s in view.progress.attained_gpu_s(jobs)]


def _running(running: Running) -> Floats:
    return np.round(running.attained_gpu_s, DIGITS)


@register("muri-l")
@dataclass(frozen=True, slots=True)
class MuriL(InterleavedPolicy):
    """Interleaving groups by Blossom matching, least attained service first; preemptive."""

    knows: ClassVar[frozenset[str]] = frozenset({"attained service", "stages", "memory"})
    order: ClassVar[Order] = Order(_waiting)
    running_keys: ClassVar[Callable[[Running], Floats]] = _running
