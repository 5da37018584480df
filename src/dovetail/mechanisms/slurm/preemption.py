"""Preemption by QOS: whom a job stops, and which nodes it gets.

Candidates go by the priority of their QOS, then by nodes, the fewest first; or the youngest first.
They are taken away one after the other until the job fits. Then the list is put in another order,
the last one first and the others by how many of its nodes are wanted, and tried again, so that no
more jobs stop than needed (`preempt_reorder_count` times).

Source: `src/plugins/preempt/qos/preempt_qos.c`; `cons_common/job_test.c`, `_run_now`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.core.job import Shape
from dovetail.core.placement import Spans
from dovetail.core.placing import Placing
from dovetail.core.view import View
from dovetail.mechanisms.slurm.cycles import ROUNDING_S
from dovetail.mechanisms.slurm.node_choice import FreeNodes, choose
from dovetail.mechanisms.slurm.parameters import SlurmParameters, slurm_seconds
from dovetail.mechanisms.slurm.site import NO_QOS, Site

SIXTEEN_BITS = 0xFFFF
"""The priority of a QOS above this counts as this, to leave room for the number of nodes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running job that may be stopped."""

    job: int
    spans: Spans
    shape: Shape
    nodes: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """The jobs that are stopped for another one, and where that runs."""

    jobs: tuple[int, ...]
    spans: Spans


def candidates(
    p: SlurmParameters,
    site: Site,
    view: View,
    running: Mapping[int, Spans],
    job: int,
    nodes: int,
) -> list[Candidate]:
    """Returns the running jobs that a job may stop on some nodes, in the order of stopping."""
    qos = view.jobs.qos
    mine = qos[job]
    usual_s = slurm_seconds(p.preempt_exempt_time)
    since_s = view.progress.running_since_s
    found = [
        Candidate(other, spans, view.shape(other), bits)
        for other, spans in sorted(running.items())
        if site.may_preempt(mine, qos[other])
        and (bits := node_bits(spans)) & nodes
        and site.exempt_until_s(qos[other], since_s(other), usual_s) <= view.now + ROUNDING_S
    ]
    if p.preempt_youngest_first:
        return sorted(found, key=lambda each: -since_s(each.job))

    def rank(each: Candidate) -> tuple[float, int]:
        priority = site.qos.get(qos[each.job], NO_QOS).priority
        return min(priority, SIXTEEN_BITS), each.nodes.bit_count()

    return sorted(found, key=rank)


def node_bits(spans: Spans) -> int:
    """Returns the nodes of a placement as a set."""
    bits = 0
    for node, _ in spans:
        bits |= 1 << node
    return bits


def takeover(
    p: SlurmParameters,
    now: FreeNodes,
    placing: Placing,
    shape: Shape,
    among: int,
    order: Sequence[Candidate],
) -> Takeover | None:
    """Returns whom a job of a shape stops to run now on some nodes; None if that is not enough."""
    passes = 0
    while True:
        found = _first_room(now, placing, shape, among, order)
        if found is None:
            return None
        last, spans = found
        wanted = node_bits(spans)
        passes += 1
        if passes - 1 > p.preempt_reorder_count or len(order) <= passes:
            stopped = [each.job for each in order[: last + 1] if each.nodes & wanted]
            return Takeover(tuple(stopped), spans)
        order = _reordered(p, order, last, wanted)


def _first_room(
    now: FreeNodes, placing: Placing, shape: Shape, among: int, order: Sequence[Candidate]
) -> tuple[int, Spans] | None:
    """Returns how many candidates must go, as the place of the last, and where the job fits."""
    state = now.copy()
    for place, each in enumerate(order):
        if not each.nodes & among:
            continue
        state.release(each.spans, each.shape)
        spans = choose(state, placing, shape, among)
        if spans is not None:
            return place, spans
    return None


def _reordered(
    p: SlurmParameters, order: Sequence[Candidate], last: int, wanted: int
) -> list[Candidate]:
    if p.preempt_strict_order:
        return [order[last], *order[:last], *order[last + 1 :]]
    before = sorted(order[:last], key=lambda each: -(each.nodes & wanted).bit_count())
    # Those behind the last one count no nodes, as do those before it that are not wanted.
    return [order[last], *before, *order[last + 1 :]]
