"""Reads who shares a cluster from its TOML file: queues, accounts, QOS, reservations, maintenance.

```toml
epoch = "2026-01-05T00:00:00+01:00"      # the time of second 0, for times written as dates

[[queue]]
name = "research"
weight = 2
guaranteed = { a100 = 16 }               # lent while idle
limits = { a100 = 32 }                   # never more

[[account]]
name = "vision"
users = { ann = 2, bob = 1 }             # shares; only they may use it

[[user]]
name = "any"                             # each user without a table of their own
max_gpus = 8

[[qos]]
name = "short"
max_gpus_per_user = 4

[[reservation]]
name = "course"
start = 3600
duration = 7200
nodes = [0, 1]
accounts = ["vision"]

[[maintenance]]
start = "2026-01-12T08:00:00+01:00"
end = "2026-01-12T12:00:00+01:00"
groups = ["a100"]
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf, isfinite

from dovetail.core.cluster import NodeGroup
from dovetail.core.errors import InputError, nearest
from dovetail.core.tenants import (
    NORMAL,
    TIERS,
    AccountSpec,
    GpusByType,
    QosSpec,
    QueueSpec,
    ReservationSpec,
    Tenants,
    UserLimits,
)

Table = Mapping[str, object]
Seconds = Callable[[float], float]
"""Returns the seconds of a run at a time in seconds since 1970."""

KINDS = ("queue", "account", "qos", "user", "reservation", "maintenance")
EPOCH = "epoch"
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "queue": (
        *("name", "parent", "groups", "weight", "priority", "tier"),
        *("guaranteed", "limits", "quota_gpus", "accounts", "users", "priority_tier"),
    ),
    "account": ("name", "parent", "shares", "users", "max_gpus", "max_gpus_per_user"),
    "qos": (
        *("name", "priority", "preempts", "usage_factor"),
        *("max_gpus", "max_gpus_per_user", "max_jobs_per_user", "max_hours"),
        *("grace_s", "exempt_s"),
    ),
    "user": ("name", "max_gpus", "max_jobs"),
    "reservation": ("name", "start", "end", "duration", "nodes", "groups", "accounts", "users"),
    "maintenance": ("name", "start", "end", "duration", "nodes", "groups"),
}
ANY_TYPE = "any"
"""The key of GPUs of any type in a table of GPUs by type."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One table of the file: its checked fields, and how messages call it."""

    where: str
    fields: Table

    def fail(self, what: str, mend: str = "") -> InputError:
        return InputError(self.where, what, mend)

    def text(self, key: str) -> str:
        value = self.fields.get(key, "")
        if not isinstance(value, str):
            raise self.fail(f"field '{key}' must be a text, not {value!r}")
        return value

    def number(self, key: str, default: float = 0.0) -> float:
        value = self.fields.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (isfinite(value) or value == default):  # type: ignore[arg-type]
            raise self.fail(f"field '{key}' must be a number, not {value!r}")
        return float(value)  # type: ignore[arg-type]

    def positive(self, key: str, default: float) -> float:
        value = self.number(key, default)
        if not value > 0:
            raise self.fail(f"field '{key}' must be above 0, not {value:g}")
        return value

    def whole(self, key: str, default: int = 0) -> int:
        return _whole(self, key, self.fields.get(key, default))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.fields.get(key, [])
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise self.fail(f"field '{key}' must be a list of texts", f'as in {key} = ["a", "b"]')
        if len(set(values)) != len(values):
            raise self.fail(f"field '{key}' has a name twice")
        return tuple(values)


def _whole(row: _Row, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise row.fail(f"field '{key}' must be a whole number of 0 or more, not {value!r}")
    return value


def read_tenants(
    file: str, table: Table, groups: Sequence[NodeGroup], seconds: Seconds | None = None
) -> Tenants:
    """Returns who shares a cluster of `groups`. Raises InputError.

    Times as dates are turned into seconds of the run by `seconds`, or by the file's `epoch`. With
    `seconds` the run has no second 0 that a user could know, so plain numbers are refused.
    """
    rows = {kind: _rows(file, table, kind) for kind in KINDS}
    clock = _Clock(file, table.get(EPOCH), seconds)
    tenants = Tenants(
        tuple(_queue(row, groups) for row in rows["queue"]),
        tuple(_account(row) for row in rows["account"]),
        tuple(_qos(row) for row in rows["qos"]),
        tuple(_reservation(row, groups, clock) for row in rows["reservation"])
        + tuple(_reservation(row, groups, clock) for row in rows["maintenance"]),
        tuple(_user(row) for row in rows["user"]),
    )
    tenants.check(file, groups)
    _check_accounts(file, tenants, is_live=seconds is not None)
    return tenants


def _check_accounts(file: str, tenants: Tenants, *, is_live: bool) -> None:
    """Raises InputError for a queue of an account that nobody can submit to."""
    known = [a.name for a in tenants.accounts]
    for queue in tenants.queues:
        for account in queue.accounts:
            if account not in known and (known or is_live):
                where, what = f"{file}, queue '{queue.name}'", f"unknown account '{account}'"
                raise InputError(where, what, nearest(account, known) or "add an [[account]]")


def _rows(file: str, table: Table, kind: str) -> list[_Row]:
    values = table.get(kind, [])
    if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
        raise InputError(file, f"'{kind}' must be a list of tables", f"write [[{kind}]]")
    rows = []
    for number, value in enumerate(values):
        name = value.get("name") if isinstance(value.get("name"), str) else ""
        where = f"{file}, {kind} '{name}'" if name else f"{file}, {kind} {number + 1}"
        for key in value:
            if key not in _FIELDS[kind]:
                raise InputError(where, f"unknown field '{key}'", nearest(key, _FIELDS[kind]))
        if kind == "maintenance":
            value = {"name": f"maintenance{number + 1}", **value}
        row = _Row(where, value)
        if not row.text("name").strip():
            raise row.fail(
                "field 'name' is empty" if "name" in value else "field 'name' is missing"
            )
        rows.append(row)
    return rows


def _queue(row: _Row, groups: Sequence[NodeGroup]) -> QueueSpec:
    tier = row.text("tier") or NORMAL
    if tier not in TIERS:
        raise row.fail(f"unknown tier '{tier}'", nearest(tier, TIERS))
    return QueueSpec(
        name=row.text("name"),
        quota_gpus=row.whole("quota_gpus"),
        priority=row.number("priority"),
        parent=row.text("parent"),
        groups=_groups(row, groups),
        weight=row.positive("weight", 1.0),
        guaranteed=_by_type(row, "guaranteed", groups),
        limits=_by_type(row, "limits", groups),
        tier=tier,
        accounts=row.texts("accounts"),
        users=row.texts("users"),
        priority_tier=row.whole("priority_tier", 1),
    )


def _groups(row: _Row, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    names, known = row.texts("groups"), [g.name for g in groups]
    for name in names:
        if name not in known:
            raise row.fail(f"unknown group '{name}'", nearest(name, known))
    return names


def _by_type(row: _Row, key: str, groups: Sequence[NodeGroup]) -> GpusByType:
    """Returns GPUs by type of `{ a100 = 16, any = 4 }`, or of a plain number for any type."""
    value = row.fields.get(key, {})
    if not isinstance(value, dict):
        return (("", _whole(row, key, value)),)
    known = sorted({g.gpu_type for g in groups if g.gpu_type})
    pairs = []
    for name, gpus in value.items():
        if name != ANY_TYPE and name not in known:
            raise row.fail(f"unknown GPU type '{name}' in '{key}'", nearest(name, [*known, "any"]))
        pairs.append(("" if name == ANY_TYPE else name, _whole(row, f"{key}.{name}", gpus)))
    return tuple(pairs)


def _account(row: _Row) -> AccountSpec:
    users = row.fields.get("users", [])
    if isinstance(users, dict):
        pairs = tuple((str(u), _whole(row, f"users.{u}", n)) for u, n in users.items())
    else:
        pairs = tuple((user, 1) for user in row.texts("users"))
    if "users" in row.fields and not pairs:
        raise row.fail("field 'users' names nobody", "leave it out to let everybody use it")
    if any(shares < 1 for _, shares in pairs):
        raise row.fail("the shares of a user must be 1 or more")
    shares = row.whole("shares", 1)
    if shares < 1:
        raise row.fail("field 'shares' must be 1 or more")
    return AccountSpec(
        name=row.text("name"),
        parent=row.text("parent"),
        shares=shares,
        users=pairs,
        max_gpus=row.whole("max_gpus"),
        max_gpus_per_user=row.whole("max_gpus_per_user"),
    )


def _qos(row: _Row) -> QosSpec:
    hours = row.positive("max_hours", inf)
    for key in ("grace_s", "exempt_s"):
        if row.number(key) < 0:
            raise row.fail(f"field '{key}' must be 0 or more")
    return QosSpec(
        name=row.text("name"),
        priority=row.number("priority"),
        preempts=row.texts("preempts"),
        usage_factor=row.positive("usage_factor", 1.0),
        max_gpus=row.whole("max_gpus"),
        max_gpus_per_user=row.whole("max_gpus_per_user"),
        max_jobs_per_user=row.whole("max_jobs_per_user"),
        max_time_s=hours * 3600.0,
        grace_s=row.number("grace_s"),
        exempt_s=row.number("exempt_s") if "exempt_s" in row.fields else None,
    )


def _user(row: _Row) -> UserLimits:
    limits = UserLimits(row.text("name"), row.whole("max_gpus"), row.whole("max_jobs"))
    if not (limits.max_gpus or limits.max_jobs):
        raise row.fail("it limits nothing", "give max_gpus or max_jobs")
    return limits


def _reservation(row: _Row, groups: Sequence[NodeGroup], clock: _Clock) -> ReservationSpec:
    if "start" not in row.fields:
        raise row.fail(
            "field 'start' is missing", 'as in start = 3600, or "2026-01-12T08:00+01:00"'
        )
    start_s = clock.seconds(row, "start")
    if ("end" in row.fields) == ("duration" in row.fields):
        raise row.fail("it needs either 'end' or 'duration'")
    end_s = start_s + row.positive("duration", 1.0)
    if "end" in row.fields:
        end_s = clock.seconds(row, "end")
    if not end_s > start_s:
        raise row.fail("it ends before it begins")
    return ReservationSpec(
        name=row.text("name"),
        start_s=start_s,
        end_s=end_s,
        nodes=_nodes(row, groups),
        accounts=row.texts("accounts"),
        users=row.texts("users"),
    )


def _nodes(row: _Row, groups: Sequence[NodeGroup]) -> tuple[int, ...]:
    """Returns the nodes of a reservation: those listed and those of its groups."""
    listed = row.fields.get("nodes", [])
    if not isinstance(listed, list):
        raise row.fail("field 'nodes' must be a list of node numbers", "as in nodes = [0, 1]")
    of_group = [g.name for g in groups for _ in range(g.nodes)]
    nodes = {_whole(row, "nodes", node) for node in listed}
    for node in sorted(nodes):
        if node >= len(of_group):
            raise row.fail(f"node {node} does not exist (0..{len(of_group) - 1})")
    wanted = _groups(row, groups)
    nodes.update(node for node, name in enumerate(of_group) if name in wanted)
    if not nodes:
        raise row.fail("it names no node", "give nodes = [0, 1] or groups = [...]")
    return tuple(sorted(nodes))


class _Clock:
    """Turns the times of a file into seconds of the run."""

    def __init__(self, file: str, epoch: object, seconds: Seconds | None) -> None:
        self._seconds = seconds
        self._live = seconds is not None
        if epoch is not None and seconds is None:
            epoch_s = _unix_s(InputError(file, "'epoch' must be a date with its time zone"), epoch)
            self._seconds = lambda unix_s: unix_s - epoch_s

    def seconds(self, row: _Row, key: str) -> float:
        value = row.fields[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self._live:
                mend = 'as in "2026-01-12T08:00:00+01:00"'
                raise row.fail(f"field '{key}' must be a date in a live cluster", mend)
            return row.number(key)
        mend = 'as in "2026-01-12T08:00:00+01:00", or seconds from the start of the trace'
        unix_s = _unix_s(row.fail(f"field '{key}' must be a date with its time zone", mend), value)
        if self._seconds is None:
            mend = "add epoch = ... on top, the date of second 0 of the trace, or give seconds"
            raise row.fail(f"field '{key}' is a date, and the file has no epoch", mend)
        return self._seconds(unix_s)


def _unix_s(error: InputError, value: object) -> float:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise error from None
    if moment.tzinfo is None:
        raise error
    return moment.timestamp()
