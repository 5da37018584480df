"""GPU types of jobs: told by the other jobs of the same nodes or queue where a log omits them."""

from __future__ import annotations

import polars as pl

from dovetail.core.host_list import readable_host_names


def with_types_of_places(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Returns the rows with `gpu_type` filled where it follows from where a job ran, and how many.

    A place, a node or a queue, tells a type if all jobs there with a type have the same one. Nodes
    are asked first. `frame` has `gpu_type` (several joined by bars), `gpus`, `nodes` and `queue`.
    """
    silent = (frame["gpu_type"] == "") & (frame["gpus"] > 0).fill_null(False)
    if not silent.any() or (frame["gpu_type"] == "").all():
        return frame, 0
    typed = frame.filter(pl.col("gpu_type") != "")
    by_queue = _types_of(typed.select(place="queue", gpu_type="gpu_type"))
    by_node = _types_of(_by_node(typed))
    filled = [
        _type_at(nodes, queue, by_node, by_queue)
        for nodes, queue in frame.filter(silent).select("nodes", "queue").iter_rows()
    ]
    types = frame["gpu_type"].scatter(silent.arg_true(), filled)
    return frame.with_columns(types), sum(bool(t) for t in filled)


def _by_node(typed: pl.DataFrame) -> pl.DataFrame:
    lists = typed.select("nodes", "gpu_type").unique()
    names = [list(readable_host_names(nodes)) for nodes in lists["nodes"]]
    places = lists.select(pl.Series("place", names, dtype=pl.List(pl.String)), "gpu_type")
    return places.explode("place").drop_nulls()


def _types_of(places: pl.DataFrame) -> dict[str, str]:
    """Returns the type of each place all of whose jobs have one type."""
    one = (
        places.filter(pl.col("place") != "")
        .group_by("place")
        .agg(pl.col("gpu_type").first(), pl.col("gpu_type").n_unique().alias("types"))
        .filter(pl.col("types") == 1)
    )
    return dict(one.select("place", "gpu_type").iter_rows())


def _type_at(nodes: str, queue: str, by_node: dict[str, str], by_queue: dict[str, str]) -> str:
    found = {by_node.get(name, "") for name in readable_host_names(nodes)}
    if len(found) == 1 and "" not in found:
        return found.pop()
    return by_queue.get(queue, "")
