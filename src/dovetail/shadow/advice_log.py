"""The log of a shadow: lines of JSON, first how the cluster was, then one line of advice each time.

A line `begin` has the whole snapshot, so that `dovetail shadow report` can start from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.shadow.advice import Advice
from dovetail.shadow.snapshot import SlurmJob, SlurmNode, Snapshot

VERSION = 1
BEGIN, ADVICE = "begin", "advice"


@dataclass(frozen=True, slots=True)
class ShadowLog:
    """What a log says of its latest beginning: policy, options, snapshot, and how much advice."""

    policy: str
    forecast: str
    placement: str
    snapshot: Snapshot
    looks: int
    last_s: float
    actions: Mapping[str, int]


def append(
    path: Path, snapshot: Snapshot, advice: Advice, *, forecast: str, placement: str
) -> None:
    """Adds a look at the cluster to a log; begins anew if the policy or the nodes are others.

    Raises InputError for a file that is no such log.
    """
    options = {"policy": advice.policy, "forecast": forecast, "placement": placement}
    lines = []
    before = None
    if path.exists() and path.stat().st_size:
        before = read(path)
    if before is None or not _goes_on(before, snapshot, options):
        lines.append({"kind": BEGIN, "version": VERSION, **options, **_plain(snapshot)})
    lines.append({"kind": ADVICE, **asdict(advice)})
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}") from None


def _goes_on(before: ShadowLog, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    theirs = {
        "policy": before.policy, "forecast": before.forecast, "placement": before.placement
    }  # fmt: skip
    names = [[(n.name, n.gpus) for n in s.nodes] for s in (before.snapshot, snapshot)]
    return theirs == options and names[0] == names[1] and before.last_s <= snapshot.time_s


def _plain(snapshot: Snapshot) -> dict[str, object]:
    plain = asdict(snapshot)
    for job in plain["jobs"]:
        if job["limit_s"] == float("inf"):
            job["limit_s"] = None
    return {"snapshot": plain}


def read(path: Path) -> ShadowLog:
    """Returns the latest beginning of a log and what followed. Raises InputError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    begin: Mapping[str, object] | None = None
    looks, last_s = 0, 0.0
    actions: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        record = _record(f"{path}, line {number}", line)
        if record["kind"] == BEGIN:
            begin, looks, actions = record, 0, {}
        elif begin is not None:
            looks += 1
            last_s = float(str(record.get("time_s", 0.0)))
            for action in _list(record.get("actions")):
                verb = str(action.get("verb"))
                actions[verb] = actions.get(verb, 0) + 1
    if begin is None:
        raise InputError(str(path), "is no log of a shadow", "write one with shadow slurm --log")
    if begin.get("version") != VERSION:
        raise InputError(str(path), f"is of version {begin.get('version')}, not {VERSION}")
    return ShadowLog(
        policy=str(begin["policy"]),
        forecast=str(begin["forecast"]),
        placement=str(begin["placement"]),
        snapshot=_snapshot(str(path), begin.get("snapshot")),
        looks=looks,
        last_s=last_s,
        actions=actions,
    )


def _record(where: str, line: str) -> Mapping[str, object]:
    try:
        record = json.loads(line)
    except ValueError:
        raise InputError(where, "is not JSON", "is this a log of a shadow?") from None
    if not isinstance(record, Mapping) or record.get("kind") not in (BEGIN, ADVICE):
        raise InputError(where, "is no line of a shadow's log")
    return record


def _list(value: object) -> list[Mapping[str, object]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def _snapshot(where: str, plain: object) -> Snapshot:
    if not isinstance(plain, Mapping):
        raise InputError(where, "has a beginning without a snapshot")
    node_fields, job_fields = ({f.name for f in fields(c)} for c in (SlurmNode, SlurmJob))
    try:
        nodes = tuple(
            SlurmNode(**{**_known(row, node_fields), "partitions": tuple(row["partitions"])})  # type: ignore[arg-type]
            for row in _list(plain.get("nodes"))
        )
        jobs = tuple(_job(_known(row, job_fields)) for row in _list(plain.get("jobs")))
        return Snapshot(str(plain["cluster"]), float(plain["time_s"]), nodes, jobs)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(where, f"has a damaged snapshot: {error}") from None


def _known(row: Mapping[str, object], names: set[str]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name in names}


def _job(row: dict[str, object]) -> SlurmJob:
    held = row.get("held")
    spans = held if isinstance(held, list) else []
    limit = row.get("limit_s")
    return SlurmJob(
        **{
            **row,
            "held": tuple((str(name), int(gpus)) for name, gpus in spans),
            "limit_s": float("inf") if limit is None else limit,
        }  # type: ignore[arg-type]
    )
