"""The parallel configuration of a model on some GPUs: which blocks in which stage, how often.

A dynamic programme over blocks and GPUs makes the slowest stage as fast as can be, as PipeDream's
planner does (Narayanan et al. 2019, section 3.1), for the testbed of A-SRPT's simulations: servers
of eight V100, 300 GB/s inside and 10 Gbit/s between. A plan belongs to the job, as its trace
would give it: on another cluster it is the same plan, only slower or faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from dovetail.algorithms.pipeline_time import Links, packed_s, spread_s
from dovetail.core.job import Floats, PipelineStage
from dovetail.physics.pipelines.pipelined import LAUNCH_S, Block, Pipelined
from dovetail.physics.zoo.architecture import CONTEXT_BYTES

TESTBED = Links(300e9, 1.25e9, 8)
"""A server of the paper's simulations (section V.B)."""
MEMORY_BYTES = 32 * 2**30
"""A V100 with 32 GB: the plans of the larger models need it (assumed)."""
EDGES, BEYOND, ALWAYS = range(3)
"""Stages are taken to meet between servers where a server is full or a stage spans servers; also
everywhere beyond the first server; everywhere. A stage cannot know how the next one will lie."""
OUTLOOKS = ((8, EDGES), (8, BEYOND), (8, ALWAYS), (2, EDGES), (1, EDGES))
"""The GPUs of each server that a plan assumes to be free, and where stages meet."""
WORTH = 1.5
"""A plan worth having is so much faster than one unit of GPUs, were it to hold the model."""
UNITS_MIN = 32
"""One programme has the plans for up to so many units of GPUs, or the next power of two."""


Cut = tuple[int, int, int]
"""The first block of a stage, the one behind its last, and its replicas."""


@lru_cache(maxsize=4096)
def plan(model: Pipelined, gpus: int) -> tuple[PipelineStage, ...]:
    """Returns the stages on exactly so many GPUs; none where the model does not fit on them."""
    return _stages(model, _cuts(model, gpus))


@lru_cache(maxsize=4096)
def held_bytes(model: Pipelined, gpus: int, steps: int = 1) -> tuple[float, float]:
    """Returns the bytes on the fullest GPU of a plan: without activations, and in all.

    A replica's batch is cut into `steps` micro-batches. Both are 0 where there is no plan.
    """
    held = []
    for first, end, replicas in _cuts(model, gpus):
        block = _within(model, first, end)
        fixed = CONTEXT_BYTES + model.state_bytes * block.parameters / model.slices
        samples = ceil(ceil(model.batch / replicas) / steps)
        kept = samples * model.number_bytes * block.kept_values / model.slices
        held.append((fixed, fixed + kept))
    return max((f for f, _ in held), default=0.0), max((all_ for _, all_ in held), default=0.0)


@lru_cache(maxsize=4096)
def _cuts(model: Pipelined, gpus: int) -> tuple[Cut, ...]:
    """Returns the best of several plans, which differ in where stages are taken to meet.

    A plan is made before its placement is known: the one is taken whose shortest and longest
    iteration (servers full, every replica alone) have the least geometric mean. Plans that are
    hardly faster than one GPU are left out where others are.
    """
    graphs = {cuts: _stages(model, cuts) for cuts in _candidates(model, gpus)}
    enough_s = sum(passes_s(model, 0, len(model.blocks), model.batch)) / WORTH
    worth = [c for c, graph in graphs.items() if packed_s(graph, TESTBED) <= enough_s]
    return min(worth or graphs, key=lambda c: (_mean_s(graphs[c]), len(c)), default=())


def _candidates(model: Pipelined, gpus: int) -> tuple[tuple[Cut, ...], ...]:
    """Returns the best plan under each outlook, and one stage on all GPUs.

    A unit of GPUs is a replica's slices.
    """
    units, rest = divmod(gpus, model.slices)
    if rest or units < 1:
        return ()
    room = max(UNITS_MIN, 1 << (units - 1).bit_length())
    plans = [_Programme.of(model, meet, fragment, room).cuts(units) for fragment, meet in OUTLOOKS]
    whole = len(model.blocks)
    if np.isfinite(_stage_parts(model, whole, room).busy_s[0, units - 1]):
        plans.append(((0, whole, units),))
    return tuple(cuts for cuts in dict.fromkeys(plans) if cuts)


def _mean_s(graph: tuple[PipelineStage, ...]) -> float:
    """Returns the geometric mean of the shortest and the longest iteration."""
    return sqrt(packed_s(graph, TESTBED) * spread_s(graph, TESTBED))


class _Programme:
    """The slowest stage of the first j blocks on m units, and the choice that made it so."""

    def __init__(self, model: Pipelined, meet: int, fragment: int, units: int) -> None:
        n = len(model.blocks)
        self._slowest = np.full((n + 1, units + 1), np.inf)
        self._slowest[0, 0] = 0.0
        self._choice = np.zeros((n + 1, units + 1, 2), np.int64)
        meetings = [_Meeting.of(model, m, meet, fragment) for m in range(1, units + 1)]
        for end in range(1, n + 1):
            busy_s, reduced, received, sent = _stage_parts(model, end, units)
            for m, meeting in enumerate(meetings, start=1):
                # Row i: blocks i..end as one stage; column r - 1: with r replicas. The blocks
                # before it have m - r units, hence the reversed columns of the table.
                stage_s = busy_s[:, :m] + reduced[:, :m] * meeting.reduce_s
                stage_s += received[:, :m] * meeting.receive_s + sent[:, :m] * meeting.send_s
                before = self._slowest[:end, m - 1 :: -1][:, :m]
                both = np.maximum(before, stage_s)
                # Of equals the first counts: the stage with the earliest block, then with the
                # fewest replicas. Plans, and so speeds, depend on this choice.
                first, r = divmod(int(both.argmin()), m)
                self._slowest[end, m] = both[first, r]
                self._choice[end, m] = first, r + 1

    @staticmethod
    @lru_cache(maxsize=64)
    def of(model: Pipelined, meet: int, fragment: int, units: int) -> _Programme:
        """Returns the programme, computed once."""
        return _Programme(model, meet, fragment, units)

    def cuts(self, units: int) -> tuple[Cut, ...]:
        """Returns the stages on so many units; none where nothing fits."""
        end, cuts = len(self._slowest) - 1, []
        if not np.isfinite(self._slowest[end, units]):
            return ()
        while end:
            first, replicas = (int(x) for x in self._choice[end, units])
            cuts.append((first, end, replicas))
            end, units = first, units - replicas
        return tuple(cuts[::-1])


@lru_cache(maxsize=64)
def _sums(model: Pipelined) -> Floats:
    """Returns running sums over the blocks, a row for each field of a block."""
    columns = [[float(getattr(block, f)) for block in model.blocks] for f in Block._fields]
    return np.array([[0.0, *accumulate(column)] for column in columns])


def _within(model: Pipelined, first: int, end: int) -> Block:
    """Returns blocks `first` to `end` as one; its outputs are the sum of theirs."""
    sums = _sums(model)
    parameters, flops, out, kept, layers = (sums[:, end] - sums[:, first]).tolist()
    return Block(parameters, flops, out, kept, int(layers))


def slice_bytes(model: Pipelined, first: int, end: int, samples: float) -> float:
    """Returns the bytes that each slice of a replica exchanges in a forward pass.

    Two AllReduces over its slices of the output of each block (Shoeybi et al. 2019, section 3).
    """
    handed = model.number_bytes * samples * _within(model, first, end).out_values
    return 2 * 2 * (model.slices - 1) / model.slices * handed


def passes_s(model: Pipelined, first: int, end: int, samples: float) -> tuple[float, float]:
    """Returns the seconds of forward and backward pass of a replica over so many samples."""
    held = _within(model, first, end)
    compute_s = LAUNCH_S * held.layers + samples * held.flops / _rate(model)
    exchange_s = slice_bytes(model, first, end, samples) / TESTBED.intra_bytes_per_s
    again = model.exchanges_backward
    return compute_s + exchange_s, model.backward_factor * compute_s + again * exchange_s


def _rate(model: Pipelined) -> float:
    """Returns the operations per second of a replica's slices together."""
    return model.flops_per_s * model.slices


def _slice_bytes(model: Pipelined, out_values: Floats) -> Floats:
    """Returns the bytes that each slice exchanges for a sample with so many output values."""
    return 4 * (model.slices - 1) / model.slices * model.number_bytes * out_values


class _Parts(NamedTuple):
    """Seconds of computing and bytes of AllReduce, of input and of output of possible stages.

    Row i: blocks i.. as one stage; column r - 1: with r replicas. The seconds are infinite where
    a replica does not fit its GPUs.
    """

    busy_s: Floats
    reduced: Floats
    received: Floats
    sent: Floats


@lru_cache(maxsize=1024)
def _stage_parts(model: Pipelined, end: int, units: int) -> _Parts:
    """Returns the parts of all stages that end before block `end`."""
    sums = _sums(model)
    held = dict(zip(Block._fields, (sums[:, end, None] - sums[:, :end])[..., None], strict=True))
    r = np.arange(1, units + 1)
    samples = np.ceil(model.batch / r)
    compute_s = LAUNCH_S * held["layers"] + samples * held["flops"] / _rate(model)
    exchange_s = samples * _slice_bytes(model, held["out_values"]) / TESTBED.intra_bytes_per_s
    busy_s = (1 + model.backward_factor) * compute_s + (1 + model.exchanges_backward) * exchange_s
    handed = np.array([0.0, *(block.out_values for block in model.blocks)])
    share = 2 * model.number_bytes * model.batch / r
    out = handed[end] if end < len(model.blocks) else 0.0
    kept = samples * model.number_bytes * held["kept_values"]
    held_bytes = model.state_bytes * held["parameters"] + kept
    busy_s[CONTEXT_BYTES + held_bytes / model.slices > MEMORY_BYTES] = np.inf
    return _Parts(
        busy_s,
        2 * (r - 1) / r * held["parameters"] * model.number_bytes,
        handed[:end, None] * share,
        np.broadcast_to(out * share, busy_s.shape),
    )


class _Meeting(NamedTuple):
    """Seconds per byte of a stage of 1, 2, ... replicas that ends with unit m."""

    reduce_s: Floats
    receive_s: Floats
    send_s: Floats

    @staticmethod
    def of(model: Pipelined, m: int, meet: int, fragment: int) -> _Meeting:
        """Returns the seconds on the links of the testbed, ranks in order on full servers."""
        room = max(1, fragment // model.slices)
        r = np.arange(1, m + 1)
        start = (m - r) % room
        in_first = np.minimum(r, room - start)
        in_last = np.where(r > in_first, (m - 1) % room + 1, room)
        inside_s = 1 / (model.slices * TESTBED.intra_bytes_per_s)
        nic_s = TESTBED.gpus / (model.slices * TESTBED.nic_bytes_per_s)
        fewest = np.minimum(in_first, in_last)
        apart = meet == ALWAYS or (meet == BEYOND and m > room)
        one_server = r <= room - start
        return _Meeting(
            np.where(one_server, inside_s, nic_s / fewest),
            np.where((start == 0) | ~one_server | apart, nic_s, inside_s),
            np.where(~one_server | (m % room == 0) | apart, nic_s, inside_s),
        )


def _stages(model: Pipelined, cuts: Sequence[Cut]) -> tuple[PipelineStage, ...]:
    stages = []
    for first, end, replicas in cuts:
        forward_s, backward_s = passes_s(model, first, end, float(ceil(model.batch / replicas)))
        share = model.number_bytes * model.batch / replicas
        last = end == len(model.blocks)
        stages.append(
            PipelineStage(
                replicas=replicas,
                forward_s=forward_s,
                backward_s=backward_s,
                activation_in_bytes=share * model.blocks[first - 1].out_values if first else 0.0,
                activation_out_bytes=0.0 if last else share * model.blocks[end - 1].out_values,
                parameter_bytes=model.number_bytes * _within(model, first, end).parameters,
                slices=model.slices,
            )
        )
    return tuple(stages)
