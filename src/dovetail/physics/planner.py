"""The parallel configuration of a model on some GPUs: which blocks in which stage, how often.

A dynamic programme over blocks and GPUs makes the slowest stage as fast as can be, as PipeDream's
planner does (Narayanan et al. 2019, section 3.1), for the testbed of A-SRPT's simulations: servers
of eight V100, 300 GB/s inside and 10 Gbit/s between. A plan belongs to the job, as its trace
would give it: on another cluster it is the same plan, only slower or faster.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import overload

import numpy as np

from dovetail.algorithms.pipeline_time import Links, packed_s
from dovetail.core.job import Floats, PipelineStage
from dovetail.physics.architecture import CONTEXT_BYTES
from dovetail.physics.blocks import Block
from dovetail.physics.pipelined import LAUNCH_S, Pipelined

TESTBED = Links(300e9, 1.25e9, 8)
"""A server of the paper's simulations (section V.B)."""
MEMORY_BYTES = 32 * 2**30
"""A V100 with 32 GB: the plans of the larger models need it (assumed)."""
UNITS_MIN = 32
"""Plans up to so many units of GPUs are made at once."""


@lru_cache(maxsize=4096)
def plan(model: Pipelined, gpus: int) -> tuple[PipelineStage, ...]:
    """Returns the stages on exactly so many GPUs; none where the model does not fit on them.

    A GPU unit is a replica's slices. Of the two best by estimate (stages joined inside servers,
    and between them) the one that is faster when placed well is taken.
    """
    units, rest = divmod(gpus, model.slices)
    if rest or units < 1:
        return ()
    plans = []
    for across in (False, True) if gpus > TESTBED.gpus else (False,):
        room = max(UNITS_MIN, 1 << (units - 1).bit_length())
        cuts = _Programme.of(model, across, room).cuts(units)
        if cuts:
            plans.append(_stages(model, cuts))
    return min(plans, key=lambda p: (packed_s(p, TESTBED), len(p)), default=())


Cut = tuple[int, int, int]
"""The first block of a stage, the one behind its last, and its replicas."""


class _Programme:
    """The slowest stage of the first j blocks on m units, and the choice that made it so."""

    def __init__(self, model: Pipelined, across: bool, units: int) -> None:
        n = len(model.blocks)
        self._slowest = np.full((n + 1, units + 1), np.inf)
        self._slowest[0, 0] = 0.0
        self._choice = np.zeros((n + 1, units + 1, 2), np.int64)
        for end in range(1, n + 1):
            stage_s = np.array([_stage_s(model, i, end, units, across) for i in range(end)])
            for m in range(1, units + 1):
                # Row i: blocks i..end as one stage; column r - 1: with r replicas.
                before = self._slowest[:end, m - 1 :: -1][:, :m]
                both = np.maximum(before, stage_s[:, :m])
                first, r = divmod(int(both.argmin()), m)
                self._slowest[end, m] = both[first, r]
                self._choice[end, m] = first, r + 1

    @staticmethod
    @lru_cache(maxsize=64)
    def of(model: Pipelined, across: bool, units: int) -> _Programme:
        """Returns the programme, reckoned once."""
        return _Programme(model, across, units)

    def cuts(self, units: int) -> list[Cut]:
        """Returns the stages on so many units; none where nothing fits."""
        end, found = len(self._slowest) - 1, []
        if not np.isfinite(self._slowest[end, units]):
            return []
        while end:
            first, replicas = (int(x) for x in self._choice[end, units])
            found.append((first, end, replicas))
            end, units = first, units - replicas
        return found[::-1]


@lru_cache(maxsize=64)
def _sums(model: Pipelined) -> Floats:
    """Returns running sums over the blocks, a row for each field of a block."""
    columns = [[float(getattr(block, f)) for block in model.blocks] for f in Block._fields]
    return np.array([[0.0, *accumulate(column)] for column in columns])


def _within(model: Pipelined, first: int, end: int) -> Block:
    """Returns blocks `first` to `end` as one block; it hands on what all of them do."""
    sums = _sums(model)
    parameters, flops, out, kept, layers = (sums[:, end] - sums[:, first]).tolist()
    return Block(parameters, flops, out, kept, int(layers))


def slice_bytes(model: Pipelined, first: int, end: int, samples: float) -> float:
    """Returns what each slice of a replica exchanges with the others going forward.

    Two AllReduces over its slices of what each block hands on (Shoeybi et al. 2019, section 3).
    """
    handed = model.number_bytes * samples * _within(model, first, end).out_values
    return 2 * 2 * (model.slices - 1) / model.slices * handed


@overload
def passes_s(model: Pipelined, first: int, end: int, samples: float) -> tuple[float, float]: ...
@overload
def passes_s(model: Pipelined, first: int, end: int, samples: Floats) -> tuple[Floats, Floats]: ...
def passes_s(
    model: Pipelined, first: int, end: int, samples: float | Floats
) -> tuple[float | Floats, float | Floats]:
    """Returns the seconds of forward and backward pass of a replica over so many samples."""
    held = _within(model, first, end)
    compute_s = LAUNCH_S * held.layers + samples * held.flops / (model.flops_per_s * model.slices)
    exchange_s = samples * slice_bytes(model, first, end, 1.0) / TESTBED.intra_bytes_per_s
    again = model.exchanges_backward
    return compute_s + exchange_s, model.backward_factor * compute_s + again * exchange_s


def _stage_s(model: Pipelined, first: int, end: int, units: int, across: bool) -> Floats:
    """Returns the seconds of blocks `first` to `end` as a stage of 1, 2, ... replicas.

    Infinite where a replica does not fit its GPUs. Activations pass inside a server, or through
    the stage's share of the NIC if `across`.
    """
    held = _within(model, first, end)
    r = np.arange(1, units + 1)
    samples = np.ceil(model.batch / r)
    forward_s, backward_s = passes_s(model, first, end, samples)
    nic = TESTBED.nic_bytes_per_s * model.slices / TESTBED.gpus
    inside = TESTBED.intra_bytes_per_s * model.slices
    borders = (first - 1, end - 1)
    last = len(model.blocks) - 1
    handed = sum(model.blocks[b].out_values for b in borders if 0 <= b < last)
    exchange_s = 2 * handed * model.number_bytes * model.batch / r / (nic if across else inside)
    servers = np.ceil(r * model.slices / TESTBED.gpus)
    bandwidth = np.where(servers > 1, nic * np.ceil(r / servers), inside)
    reduce_s = 2 * (r - 1) / r * held.parameters * model.number_bytes / bandwidth
    state_bytes = model.state_bytes * held.parameters
    held_bytes = state_bytes + samples * model.number_bytes * held.kept_values
    total = forward_s + backward_s + exchange_s + reduce_s
    total[CONTEXT_BYTES + held_bytes / model.slices > MEMORY_BYTES] = np.inf
    return np.asarray(total, np.float64)


def _stages(model: Pipelined, cuts: list[Cut]) -> tuple[PipelineStage, ...]:
    found = []
    for first, end, replicas in cuts:
        forward_s, backward_s = passes_s(model, first, end, float(ceil(model.batch / replicas)))
        share = model.number_bytes * model.batch / replicas
        last = end == len(model.blocks)
        found.append(
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
    return tuple(found)
