"""A job spec as it may be shown and logged: without the values of its environment."""

from __future__ import annotations

from dataclasses import replace

from dovetail.wire.spec import JobSpec

MASK = "***"


def public(spec: JobSpec) -> JobSpec:
    """Returns the spec with every value of its environment masked; they may be secrets."""
    return replace(spec, environment=tuple((name, MASK) for name, _ in spec.environment))
