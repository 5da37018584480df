"""Reads changes of capacity from a file: which nodes go down, drain or return, and when.

There are two forms. `t_s,node,state` has one change per row, with state up, draining or down.
`time,active[,total]` has the number of active nodes at each time (as in the public Philly and
Helios node sequences): the nodes with the highest numbers go down first, and counts that exceed
the cluster are scaled to it. Times are seconds or ISO timestamps; the first row is time 0 of the
simulation.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from dovetail.core.cluster import DOWN, DRAINING, UP, Cluster
from dovetail.core.errors import InputError, nearest

Timeline = list[tuple[float, list[tuple[int, str]]]]


def read_capacity(path: Path, cluster: Cluster) -> Timeline:
    """Returns the changes in order of time. Raises InputError."""
    lines = _lines(path)
    header = next(lines, None)
    if header is None:
        raise InputError(str(path), "it is empty")
    columns = [c.strip().lower() for c in header[1]]
    if {"t_s", "node", "state"} <= set(columns):
        return _by_node(_rows(path, lines, columns), cluster)
    if {"time", "active"} <= set(columns):
        return _by_count(_rows(path, lines, columns), cluster.nodes)
    raise InputError(
        f"{path}, line 1", f"columns {columns} are unknown", "use t_s,node,state or time,active"
    )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if row:
            yield number, row


def _rows(
    path: Path, lines: Iterator[tuple[int, list[str]]], columns: list[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields where each row is, and its fields by column. Raises InputError."""
    for number, row in lines:
        where = f"{path}, line {number}"
        if len(row) != len(columns):
            raise InputError(where, f"{len(row)} fields, expected {len(columns)}")
        yield where, dict(zip(columns, row, strict=True))


def _by_node(rows: Iterator[tuple[str, dict[str, str]]], cluster: Cluster) -> Timeline:
    timeline: Timeline = []
    for where, row in rows:
        t_s, state, node = _seconds(where, row["t_s"]), row["state"].strip().lower(), row["node"]
        if state not in (UP, DRAINING, DOWN):
            raise InputError(
                where, f"unknown state '{state}'", nearest(state, (UP, DRAINING, DOWN))
            )
        node = node.strip()
        if not node.isdecimal() or int(node) >= cluster.nodes:
            raise InputError(where, f"no node '{node}'", f"nodes are 0 to {cluster.nodes - 1}")
        if timeline and t_s < timeline[-1][0]:
            raise InputError(where, "times must not decrease")
        if timeline and timeline[-1][0] == t_s:
            timeline[-1][1].append((int(node), state))
        else:
            timeline.append((t_s, [(int(node), state)]))
    return timeline


def _by_count(rows: Iterator[tuple[str, dict[str, str]]], nodes: int) -> Timeline:
    counts: list[tuple[float, int]] = []
    first_s = 0.0
    for where, row in rows:
        t_s = _seconds(where, row["time"])
        first_s = t_s if not counts else first_s
        try:
            active = int(float(row["active"]))
        except ValueError:
            raise InputError(where, f"'{row['active']}' is not a count of nodes") from None
        if active < 0 or (counts and t_s - first_s < counts[-1][0]):
            raise InputError(where, "counts must not be negative, and times must not decrease")
        counts.append((t_s - first_s, active))
    return _changes(counts, nodes)


def _changes(counts: list[tuple[float, int]], nodes: int) -> Timeline:
    """Returns the changes that keep as many nodes up as were active, the lowest numbers first."""
    most = max((c for _, c in counts), default=nodes)
    timeline: Timeline = []
    up = nodes
    for t_s, count in counts:
        wanted = count if most <= nodes else round(count * nodes / most)
        if wanted < up:
            timeline.append((t_s, [(n, DOWN) for n in range(wanted, up)]))
        elif wanted > up:
            timeline.append((t_s, [(n, UP) for n in range(up, wanted)]))
        up = wanted
    return timeline


def _seconds(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            raise InputError(where, f"'{text}' is not a time", "seconds or ISO") from None
    if not -1e12 < value < 1e12:
        raise InputError(where, f"'{text}' is out of range")
    return value
