"""Formats one record of the event log as a line of text, with units as in the tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from dovetail.cli.cluster_tables import span

_LEADING = ("t", "e", "job")
"""Fields that the beginning of the line shows."""


def fact_text(fact: Mapping[str, object], called: str) -> str:
    """Returns time, event, job (its name is `called`, empty for none) and details of a record."""
    job = f" job {called}" if called else ""
    details = ", ".join(f"{k} {_text(k, v)}" for k, v in fact.items() if k not in _LEADING)
    t_s = cast(float, fact.get("t", 0.0))
    return f"{span(float(t_s)):>12}  {fact.get('e')}{job}  {details}".rstrip()


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "on":
        spans = cast(Iterable[tuple[int, int]], value)
        return " + ".join(f"{gpus} on node {node}" for node, gpus in spans)
    if name == "gpu_ids":
        ids_by_node = cast(Iterable[Iterable[int]], value)
        return "+".join(",".join(map(str, ids)) for ids in ids_by_node)
    if name == "reasons":
        reasons = cast(Iterable[Mapping[str, object]], value)
        codes = Counter(str(reason.get("code")) for reason in reasons)
        return " ".join(code if n == 1 else f"{code} ({n})" for code, n in codes.items()) or "-"
    if isinstance(value, int | float):
        return _number(name, value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _number(name: str, value: float) -> str:
    if name.endswith("_s") or name == "from":
        return span(value)
    if name.endswith("_bytes"):
        return f"{value / 2**30:.1f}G"
    return f"{value:.2f}" if name in ("rate", "scale") else f"{value:g}"
