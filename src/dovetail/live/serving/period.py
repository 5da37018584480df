"""Since when the nodes of a live cluster are what they are: a log is of one cluster.

A folder may be brought up on one engine, and later on another. What happened before is on record
for its jobs, and is another cluster's history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.live.store.queries import Queries

PERIOD = "period"
"""The name under which a store keeps the period that its latest controller is of."""


@dataclass(frozen=True, slots=True)
class Period:
    """The facts behind number `after`, and the policies they were decided by, oldest first."""

    after: int = 0
    policies: tuple[str, ...] = ()

    @staticmethod
    def of(reader: Queries) -> Period:
        """Returns the period that is on record."""
        said = _kept(reader, PERIOD)
        after, policies = said.get("after", 0), said.get("policies", ())
        if type(after) is not int or not isinstance(policies, list | tuple):
            return Period(reader.last_fact())
        return Period(after, tuple(map(str, policies)))


def begun(reader: Queries, manifest: str, engine: str) -> Mapping[str, str]:
    """Returns what a store keeps of a controller that begins, by name."""
    before, now = _kept(reader, "manifest"), json.loads(manifest)
    period = Period.of(reader)
    if before and _nodes(before) != _nodes(now):
        period = Period(reader.last_fact())
    if period.policies[-1:] != (now["policy"],):
        period = Period(period.after, (*period.policies, now["policy"]))
    kept = {"after": period.after, "policies": period.policies}
    return {"manifest": manifest, "engine": engine, PERIOD: json.dumps(kept)}


def _nodes(manifest: dict[str, Any]) -> tuple[object, object]:
    cluster = manifest.get("cluster")
    return manifest.get("engine"), cluster.get("groups") if isinstance(cluster, dict) else None


def _kept(reader: Queries, name: str) -> dict[str, Any]:
    """Returns the JSON object that is kept under a name, empty for none and for a damaged one."""
    try:
        kept = json.loads(reader.meta(name) or "{}")
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
