"""`--capacity inferred`: the changes of capacity that the nodes seen in use imply."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.core.trace import Trace
from dovetail.study.options import Options

if TYPE_CHECKING:
    from dovetail.traces.inferred_capacity import InferredCapacity

NAMED = 5


def with_inferred_capacity(options: Options, trace: Trace) -> tuple[Options, list[str]]:
    """Returns the options with the inferred changes of capacity if they ask for them, and notes.

    Raises InputError if the trace does not record nodes, or the cluster has too few.
    """
    if not options.infer_capacity:
        return options, []
    # Every run imports this module, and few infer anything.
    from dovetail.traces.inferred_capacity import infer_capacity

    found = infer_capacity(trace, options.cluster)
    return replace(options, capacity=found.timeline, infer_capacity=False), _notes(found, options)


def _notes(found: InferredCapacity, options: Options) -> list[str]:
    away_s: dict[str, float] = {}
    for away in found.aways:
        away_s[away.node] = away_s.get(away.node, 0.0) + away.end_s - away.start_s
    most = sorted(away_s, key=lambda name: (-away_s[name], name))
    words = ", ".join(f"{name} {away_s[name] / 3600:,.0f} h" for name in most[:NAMED])
    more = f" and {len(most) - NAMED} more" if len(most) > NAMED else ""
    unseen = options.cluster.nodes - len(found.nodes)
    notes = [
        f"Capacity inferred: {len(most)} of {len(found.nodes)} nodes were away at times "
        f"({words}{more})."
        if most
        else f"Capacity inferred: none of {len(found.nodes)} nodes was away for long while jobs "
        "waited."
    ]
    notes.append(
        "Away means: empty for six hours or more while jobs that fit on the node waited. The log "
        "does not tell reservations and limits, which look the same, nor holds and dependencies "
        "where it has no eligible_s."
    )
    if unseen > 0:
        notes.append(f"{unseen} nodes of the cluster are never seen in use; they count as present.")
    if found.unreadable:
        notes.append(f"The node lists of {found.unreadable:,} jobs cannot be read.")
    return notes
