"""A fact of the log as a line for people: times, lengths and places as the tables have them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from dovetail.cli.cluster_tables import span

_APART = ("t", "e", "job")


def fact_text(fact: Mapping[str, Any], called: str) -> str:
    """Returns when it was, what, of which job (`called` so, empty for none), and its details."""
    job = f" job {called}" if called else ""
    details = ", ".join(f"{k} {_text(k, v)}" for k, v in fact.items() if k not in _APART)
    return f"{span(float(fact.get('t', 0.0))):>12}  {fact.get('e')}{job}  {details}".rstrip()


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "on":
        return " + ".join(f"{gpus} on node {node}" for node, gpus in value)
    if name == "gpu_ids":
        return "+".join(",".join(map(str, ids)) for ids in value)
    if name == "reasons":
        codes = Counter(str(reason.get("code")) for reason in value)
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
