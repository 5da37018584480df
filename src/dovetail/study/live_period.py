"""Since when the nodes of a live cluster are what they are: a log is of one cluster.

A folder may be brought up on one engine, and later on another. What happened before is on record
for its jobs, and is another cluster's history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.live.durable.queries import Queries

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
        said = json.loads(reader.meta(PERIOD) or "{}")
        return Period(int(said.get("after", 0)), tuple(said.get("policies", ())))


def begun(reader: Queries, manifest: str, engine: str) -> Mapping[str, str]:
    """Returns what a store keeps of a controller that begins, by name."""
    before, now = json.loads(reader.meta("manifest") or "null"), json.loads(manifest)
    period = Period.of(reader)
    if before is not None and _nodes(before) != _nodes(now):
        period = Period(reader.last_fact())
    if period.policies[-1:] != (now["policy"],):
        period = Period(period.after, (*period.policies, now["policy"]))
    kept = {"after": period.after, "policies": period.policies}
    return {"manifest": manifest, "engine": engine, PERIOD: json.dumps(kept)}


def _nodes(manifest: dict[str, Any]) -> tuple[object, object]:
    return manifest["engine"], manifest["cluster"]["groups"]
