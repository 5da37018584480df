"""What GPUs cost: prices by GPU type, and the cost of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.core.units import DAY_S, HOUR_S

MONTH_S = 30 * DAY_S
"""A month of cost: 720 hours, whatever the calendar says."""
_AS_IN = "as in a100=2.10 or a100=2.10/h, or 2.10 for GPUs of every type"


@dataclass(frozen=True, slots=True)
class GpuPrices:
    """Prices per GPU and hour by GPU type, in the user's currency; `default` is of other types."""

    by_type: Mapping[str, float]
    default: float | None = None

    def per_gpu_h(self, gpu_type: str) -> float:
        """Returns the price of a type. Raises InputError if it is unknown."""
        price = self.by_type.get(gpu_type, self.default)
        if price is None:
            name = gpu_type or "GPUs without a type"
            mend = f"give --price {gpu_type or 'NUMBER'}{'=NUMBER' if gpu_type else ''}"
            raise InputError("--price", f"no price for {name}", mend)
        return price

    def cluster_per_h(self, cluster: Cluster) -> float:
        """Returns the price of all installed GPUs for an hour, used or not. Raises InputError."""
        groups = (g for g in cluster.groups if g.nodes * g.gpus_per_node)
        return sum(g.nodes * g.gpus_per_node * self.per_gpu_h(g.gpu_type) for g in groups)

    def cluster_per_month(self, cluster: Cluster) -> float:
        """Returns the price of all installed GPUs for 30 days. Raises InputError."""
        return self.cluster_per_h(cluster) * MONTH_S / HOUR_S


def read_prices(texts: Sequence[str], groups_of: Iterable[Cluster]) -> GpuPrices | None:
    """Returns the prices of options `TYPE=NUMBER`, and of the clusters' files; None without any.

    An option overrides the file. Raises InputError for a type that no cluster has, for two groups
    of one type with different prices, and for a type without a price.
    """
    clusters = list(groups_of)
    filed = _filed(clusters)
    given, default = _given(texts)
    types = {g.gpu_type for cluster in clusters for g in cluster.groups}
    for gpu_type in given:
        if clusters and gpu_type not in types:
            known = nearest(gpu_type, [t for t in types if t]) if types - {""} else "it has none"
            raise InputError("--price", f"the cluster has no GPU type '{gpu_type}'", known)
    if not given and not filed and default is None:
        return None
    prices = GpuPrices({**filed, **given}, default)
    for cluster in clusters:
        prices.cluster_per_h(cluster)
    return prices


def _filed(clusters: Sequence[Cluster]) -> dict[str, float]:
    found: dict[str, float] = {}
    for group in (g for cluster in clusters for g in cluster.groups if g.price_per_gpu_h):
        if found.setdefault(group.gpu_type, group.price_per_gpu_h) != group.price_per_gpu_h:
            raise InputError(
                "price_per_gpu_h",
                f"two groups of GPU type '{group.gpu_type}' have different prices",
                "give the groups different types, or one price",
            )
    return found


def _given(texts: Sequence[str]) -> tuple[dict[str, float], float | None]:
    """Returns the prices by type, and the price of all other types."""
    given: dict[str, float] = {}
    default: float | None = None
    for part in (p.strip() for text in texts for p in text.split(",")):
        name, equals, number = part.rpartition("=")
        gpu_type, price = name.strip().lower(), _number(part, number)
        if equals and not gpu_type:
            raise InputError("--price", f"'{part}' names no GPU type", _AS_IN)
        if gpu_type in given or (not equals and default is not None):
            raise InputError("--price", f"'{part}' gives a price twice", _AS_IN)
        if equals:
            given[gpu_type] = price
        else:
            default = price
    return given, default


def _number(part: str, text: str) -> float:
    bare = text.strip().removesuffix("/h").strip()
    try:
        price = float(bare)
    except ValueError:
        raise InputError("--price", f"'{part}' is not a price", _AS_IN) from None
    if not isfinite(price) or price < 0:
        raise InputError("--price", f"'{part}' is not a price of 0 or more", _AS_IN)
    return price
