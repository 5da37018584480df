"""Jobs on disk: records and requests as JSON texts, and back without a guess."""

from __future__ import annotations

import json
from dataclasses import replace

from dovetail.core.errors import IllegalPlan
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.wire.codec import WireError, build, parse_object, plain
from dovetail.wire.spec import EACH_GPU, JobSpec

_NO_NUMBER = "NaN"
DERIVED = ("gpus", "nodes")
"""What a placement computes from its spans."""
KEPT_BYTES_MAX = 1 << 30
"""What we wrote ourselves is read, however long: it was bounded when it was taken."""


def record_text(record: JobRecord) -> str:
    """Returns a record as a JSON object; what has its usual value is left out.

    Raises WireError for what could not be read again: it must never be kept.
    """
    said = plain(record)
    placement = said.get("placement")
    if isinstance(placement, dict):
        for name in DERIVED:
            placement.pop(name, None)
    text = _text(said)
    if _NO_NUMBER in text:
        record_of(text)
    return text


def record_of(text: str | bytes) -> JobRecord:
    """Returns the record that a text holds. Raises WireError."""
    said = parse_object(_utf8(text), KEPT_BYTES_MAX)
    try:
        state = State(str(said.pop("state", State.PENDING)))
        ending = said.pop("ending", None)
        record: JobRecord = build(JobRecord, said)
        return replace(record, state=state, ending=None if ending is None else State(str(ending)))
    except (ValueError, IllegalPlan) as error:
        raise WireError(f"JobRecord: {error}") from None


def spec_text(spec: JobSpec) -> str:
    """Returns a request as a JSON object; what has its usual value is left out.

    Raises WireError for what could not be read again: it must never be kept.
    """
    # Always written: a request without it was accepted before jobs had `ntasks`.
    text = _text(plain(spec) | {"ntasks": spec.ntasks})
    if _NO_NUMBER in text:
        spec_of(text)
    return text


def spec_of(text: str | bytes) -> JobSpec:
    """Returns the request that a text holds. Raises WireError.

    One of a release that did not know `ntasks` keeps its meaning: its program runs on each GPU,
    and finds all the variables that were set then.
    """
    fields = parse_object(_utf8(text), KEPT_BYTES_MAX)
    if "ntasks" not in fields:
        fields |= {"ntasks": EACH_GPU, "slurm_variables": True}
    spec: JobSpec = build(JobSpec, fields)
    return spec


def _utf8(text: str | bytes) -> bytes:
    """Returns a text as bytes that are UTF-8. Raises WireError."""
    if not isinstance(text, str | bytes):
        raise WireError("not text")
    try:
        return text.encode() if isinstance(text, str) else text.decode().encode()
    except UnicodeError:
        raise WireError("not UTF-8") from None


_text = json.JSONEncoder(separators=(",", ":")).encode
