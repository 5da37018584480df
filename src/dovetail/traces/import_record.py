"""The record of an import that a canonical file carries: what became of each row of the log.

In CSV it is one comment line above the header, in Parquet an entry of the file's metadata. A file
without it says nothing, and what its import left out is unknown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from dovetail.core.errors import InputError
from dovetail.core.trace import ImportRecord, Trace
from dovetail.traces.hardware import cluster_of_log

T = TypeVar("T")

COMMENT = "# dovetail import: "
METADATA_KEY = "dovetail_import"


def comment_line(record: ImportRecord) -> bytes:
    """Returns the record as the first line of a CSV file."""
    return f"{COMMENT}{record_text(record)}\n".encode()


def record_text(record: ImportRecord) -> str:
    """Returns the record as JSON in one line of ASCII."""
    fields = asdict(record)
    if not record.cluster:
        del fields["cluster"]
    return json.dumps(fields, separators=(",", ":"))


def read_record(text: str, where: str) -> ImportRecord:
    """Returns the record of a JSON text. Raises InputError."""
    try:
        found = json.loads(text)
        counts = {str(k): int(n) for k, n in found["counts"].items()}
        return ImportRecord(
            str(found["source"]),
            str(found["format"]),
            counts,
            float(found["gpu_s"]),
            float(found["lost_gpu_s"]),
            tuple(str(note) for note in found["notes"]),
            None if found.get("epoch_s") is None else float(found["epoch_s"]),
            str(found.get("zone", "")),
            str(found.get("cluster", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        mend = "restore the line, or remove it: then what was left out counts as unknown"
        raise InputError(where, "the record of its import cannot be read", mend) from None


def joined_records(records: Sequence[ImportRecord | None]) -> ImportRecord | None:
    """Returns the record of several files together, None if one of them has none."""
    known = [record for record in records if record is not None]
    if not known or len(known) < len(records):
        return None
    counts: Counter[str] = Counter()
    for record in known:
        counts.update(record.counts)
    return ImportRecord(
        ", ".join(dict.fromkeys(record.source for record in known)),
        ", ".join(dict.fromkeys(record.format for record in known)),
        dict(counts),
        sum(record.gpu_s for record in known),
        sum(record.lost_gpu_s for record in known),
        tuple(dict.fromkeys(note for record in known for note in record.notes)),
        _common([record.epoch_s for record in known], None),
        _common([record.zone for record in known], ""),
        _common([record.cluster for record in known], ""),
    )


def _common(values: Sequence[T], otherwise: T) -> T:
    """Returns what all have in common."""
    return values[0] if len(set(values)) == 1 else otherwise


def derived(part: Trace, whole: Trace, command: str) -> Trace:
    """Returns a trace made from another by a command, its record saying what no longer holds.

    The record keeps the cluster of the log, and its losses and zone.
    """
    record = part.imported
    if record is None:
        return part
    gone = []
    if whole.recorded is not None and part.recorded is None:
        gone.append("recorded starts, ends and nodes")
    if whole.imported is not None and whole.imported.epoch_s is not None and record.epoch_s is None:
        gone.append("dates")
    notes = record.notes
    if gone:
        notes = (
            *notes,
            f"made by {command}, which left out the {' and the '.join(gone)} of the log: they no "
            "longer hold",
        )
    cluster = record.cluster or cluster_of_log(whole)
    return replace(part, imported=replace(record, notes=notes, cluster=cluster))


def source_name(files: Sequence[Path]) -> str:
    """Returns the names of the files of a log, without folders, which differ between machines."""
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return ", ".join(path.name for path in files[:3]) + more
