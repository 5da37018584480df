"""The sale of all GPUs: to jobs alone, and to pairs that are worth more together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.algorithms.gpu_price import Sale, sell
from dovetail.core.defragmentation import Stake
from dovetail.core.job import Bools, Floats, Ints
from dovetail.core.packing import Unit
from dovetail.core.view import View
from dovetail.mechanisms.elastic.shares import Contenders
from dovetail.mechanisms.pricing.pair_rates import STEPS, pair_rates_of
from dovetail.mechanisms.pricing.pairs import Candidates, matched, values_of_pairs
from dovetail.mechanisms.pricing.values import at_held, with_hysteresis

ROUNDS = 3
"""How often pairs are chosen anew at the price that the last ones made."""
CANDIDATES_MAX = 192
"""Jobs among which pairs are looked for: those that make most of a GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """The buyers of GPUs, row by row as in `who`.

    `speeds` and `values` [jobs, GPUs + 1] are -inf where a job cannot run. `stop` and `grow` are
    the shares of its horizon that a job loses by a move or a stop, and until more GPUs train.
    """

    who: Contenders
    weights: Floats
    speeds: Floats
    horizon_s: Floats
    stop: Floats
    grow: Floats

    @property
    def values(self) -> Floats:
        """Returns what each job makes of each number of GPUs."""
        return self.weights[:, None] * self.speeds

    def stakes(self) -> dict[int, Stake]:
        """Returns the weight and the horizon of each job."""
        columns = self.who.jobs.tolist(), self.weights.tolist(), self.horizon_s.tolist()
        return {job: Stake(w, h) for job, w, h in zip(*columns, strict=True)}


class Sold(NamedTuple):
    """The units that bought GPUs, and the job that bought the last of them, -1 for none."""

    units: list[Unit]
    last_job: int


def sell_alone(market: Market, gpus: int) -> Sold:
    """Returns the units of a sale to jobs alone."""
    who = market.who
    values = market.values
    saved = at_held(values, who.held) * market.stop
    priced = with_hysteresis(values, who.held, grow=market.grow, saved=saved)
    sale = sell(priced, gpus)
    return Sold(_units(who, sale.gpus), _last_job(who, sale))


def _last_job(who: Contenders, sale: Sale) -> int:
    return int(who.jobs[sale.last]) if sale.last >= 0 else -1


def _units(who: Contenders, gpus: Ints) -> list[Unit]:
    sold = np.flatnonzero(gpus)
    columns = who.jobs[sold].tolist(), gpus[sold].tolist(), who.low[sold].tolist()
    return [Unit((job,), count, low, (1,)) for job, count, low in zip(*columns, strict=True)]


def sell_shared(view: View, market: Market, gpus: int) -> Sold:
    """Returns the units of a sale in which two jobs may buy GPUs together."""
    who = market.who
    values = market.values
    rows = _may_share(view, market, values)
    if len(rows) < 2:
        return sell_alone(market, gpus)
    partner, now = _as_they_share(view, market, rows)
    held = _held_alone(who.held, rows, partner, now)
    making = at_held(values, held)
    making[rows] = now
    priced = with_hysteresis(values, held, grow=market.grow, saved=making * market.stop)
    sale = sell(priced, gpus)
    best = _Shared(sale, _total(priced, sale), [])
    tables = pair_rates_of(view)
    kinds = tables.rows(who.kind[rows].tolist(), who.jobs[rows].tolist())
    candidates = Candidates(
        rows,
        kinds,
        who.low[rows],
        who.cap[rows],
        market.weights[rows],
        now,
        who.held[rows],
        partner,
        _wishes(view, who.jobs[rows]),
        held[rows] == who.held[rows],
        market.stop[rows],
        market.grow[rows],
    )
    pairs = values_of_pairs(tables, candidates)
    counts = np.arange(priced.shape[1])
    price = sale.price
    for _ in range(ROUNDS):
        apart = (priced[rows] - price * counts).max(axis=1)
        chosen = matched(pairs.values, tables.counts, apart, price, partner)
        buyers = _with_pairs(priced, rows, pairs.values, tables.counts, chosen)
        sale = sell(buyers, gpus)
        total = _total(buyers, sale)
        if total > best.total:
            best = _Shared(sale, total, chosen)
        if sale.price == price:
            break
        price = sale.price
    return _settled(market, best, candidates, priced, pairs.values, pairs.variant, tables.counts)


class _Shared(NamedTuple):
    sale: Sale
    total: float
    pairs: list[tuple[int, int]]


def _total(values: Floats, sale: Sale) -> float:
    return float(values[np.arange(len(values)), sale.gpus].sum())


def _may_share(view: View, market: Market, values: Floats) -> Ints:
    """Returns the rows of the jobs among which pairs are looked for."""
    who = market.who
    may = view.jobs.shareable[who.jobs] & view.jobs.preemptible[who.jobs]
    rows = np.flatnonzero(may)
    if len(rows) <= CANDIDATES_MAX:
        return rows
    counts = np.maximum(np.arange(values.shape[1]), 1)
    most = (values[rows] / counts).max(axis=1)
    # Those that share already come first, so that no pair is parted for want of room here.
    most[_shares_now(view, who.jobs[rows])] = np.inf
    return np.sort(rows[np.argsort(-most, kind="stable")[:CANDIDATES_MAX]])


def _shares_now(view: View, jobs: Ints) -> Bools:
    sharing = view.plan.occupancy.sharing_jobs()
    return np.isin(jobs, np.array(sorted(sharing), np.int64))


def _wishes(view: View, jobs: Ints) -> Ints:
    """Returns a number for the nodes each job may use: pairs are placed as one of them asks."""
    wishes: dict[tuple[object, ...], int] = {}
    rows: list[int] = []
    for job in jobs.tolist():
        shape = view.shape(job)
        wish = shape.gpu_type, shape.groups, shape.topology, shape.avoided
        rows.append(wishes.setdefault(wish, len(wishes)))
    return np.array(rows, np.int64)


def _as_they_share(view: View, market: Market, rows: Ints) -> tuple[Ints, Floats]:
    """Returns the partner of each candidate, -1 for none, and what it makes of its GPUs now."""
    jobs = market.who.jobs[rows].tolist()
    place = {job: at for at, job in enumerate(jobs)}
    partner = np.full(len(rows), -1, np.int64)
    now = np.zeros(len(rows))
    for at, job in enumerate(jobs):
        placement = view.running.get(job)
        if placement is None:
            continue
        beside = view.plan.occupancy.company(placement) - {job} if placement.gpu_ids else set()
        neighbours = [(other, view.running[other]) for other in sorted(beside)]
        now[at] = market.weights[rows[at]] * view.physics.rate(job, placement, neighbours)
        if len(beside) == 1:
            partner[at] = place.get(next(iter(beside)), -1)
    return partner, now


def _held_alone(held: Ints, rows: Ints, partner: Ints, now: Floats) -> Ints:
    """Returns the GPUs that jobs keep if they run alone: of two that share, one keeps them."""
    alone = held.copy()
    for at, other in enumerate(partner.tolist()):
        if other >= 0 and (now[at], -at) < (now[other], -other):
            alone[rows[at]] = 0
    return alone


def _with_pairs(
    priced: Floats, rows: Ints, pairs: Floats, counts: Ints, chosen: Sequence[tuple[int, int]]
) -> Floats:
    """Returns the values of the buyers: each pair in the row of its first job."""
    if not chosen:
        return priced
    buyers, near = priced.copy(), counts[counts < priced.shape[1]]
    for i, j in chosen:
        mine = np.maximum(priced[rows[i]], priced[rows[j]])
        mine[near] = np.maximum(mine[near], pairs[i, j, : len(near)])
        buyers[rows[i]] = mine
        buyers[rows[j], 1:] = -np.inf
    return buyers


def _settled(
    market: Market,
    best: _Shared,
    who: Candidates,
    priced: Floats,
    pairs: Floats,
    variant: NDArray[np.int8],
    counts: Ints,
) -> Sold:
    """Returns the units of a sale: of each pair both jobs, or the one that makes more alone."""
    gpus, jobs, shared = best.sale.gpus.copy(), market.who.jobs, []
    at_count = {count: at for at, count in enumerate(counts.tolist())}
    for i, j in best.pairs:
        first, second = int(who.rows[i]), int(who.rows[j])
        count = int(gpus[first])
        alone = max(priced[first, count], priced[second, count])
        at = at_count.get(count)
        if count and at is not None and pairs[i, j, at] > alone:
            steps = STEPS[int(variant[i, j, at])]
            least = int(max(who.low[i], who.low[j]))
            shared.append(Unit((int(jobs[first]), int(jobs[second])), count, least, steps))
            gpus[first] = 0
        elif priced[second, count] > priced[first, count]:
            gpus[first], gpus[second] = 0, count
    return Sold([*_units(market.who, gpus), *shared], _last_job(market.who, best.sale))
