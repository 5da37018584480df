"""The period of a store: its facts since the cluster has had the engine and nodes of today.

A home may be brought up on one engine, and later on another. Earlier facts stay on record for
their jobs, but an exported log is of one cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.live.store.queries import Queries

PERIOD = "period"
"""The name under which a store keeps the period of its latest controller."""


@dataclass(frozen=True, slots=True)
class LogPeriod:
    """The facts after number `after`, and the policies that decided them, oldest first."""

    after: int = 0
    policies: tuple[str, ...] = ()

    @staticmethod
    def of(reader: Queries) -> LogPeriod:
        """Returns the period that is on record."""
        period = _json_object(reader, PERIOD)
        after, policies = period.get("after", 0), period.get("policies", ())
        if type(after) is not int or not isinstance(policies, list | tuple):
            return LogPeriod(reader.last_fact())
        return LogPeriod(after, tuple(map(str, policies)))


def starting_meta(reader: Queries, manifest: str, engine: str) -> Mapping[str, str]:
    """Returns the named values that a controller stores when it starts.

    Another engine or other nodes make another cluster, whose period begins here.
    """
    before, now = _json_object(reader, "manifest"), json.loads(manifest)
    period = LogPeriod.of(reader)
    if before and _nodes(before) != _nodes(now):
        period = LogPeriod(reader.last_fact())
    if period.policies[-1:] != (now["policy"],):
        period = LogPeriod(period.after, (*period.policies, now["policy"]))
    text = json.dumps({"after": period.after, "policies": period.policies})
    return {"manifest": manifest, "engine": engine, PERIOD: text}


def _nodes(manifest: dict[str, object]) -> tuple[object, object]:
    cluster = manifest.get("cluster")
    return manifest.get("engine"), cluster.get("groups") if isinstance(cluster, dict) else None


def _json_object(reader: Queries, name: str) -> dict[str, object]:
    """Returns the JSON object under a name, empty for none and for a damaged one."""
    try:
        value = json.loads(reader.meta(name) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
