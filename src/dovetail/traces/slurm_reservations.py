"""Reads the output of `scontrol show reservation`, with or without `-o`.

Source: scontrol(1) of Slurm 22.05; `src/api/reservation_info.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from dovetail.core.errors import InputError
from dovetail.traces.slurm_conf import hosts

_PAIR = re.compile(r"(\w+)=(\S*)")
_NEEDS = ("StartTime", "EndTime", "Nodes")
_NOT_READ = frozenset({"DAILY", "HOURLY", "WEEKLY", "WEEKDAY", "WEEKEND", "MAGNETIC", "FLEX"})
"""Flags of reservations that repeat, or whose nodes are not set aside for those who name them."""


@dataclass(frozen=True, slots=True)
class SlurmReservation:
    """A reservation; times with their offset from UTC. Maintenance has neither users nor accounts.

    `left_out` is what it says that a cluster file cannot.
    """

    name: str
    start: str
    end: str
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def read_reservations(file: str, text: str, zone: ZoneInfo) -> list[SlurmReservation]:
    """Returns the reservations of an output whose times are of a zone. Raises InputError."""
    rows = [dict(_PAIR.findall(part)) for part in _blocks(text)]
    if not rows and text.strip() and "No reservations" not in text:
        mend = "it is the output of scontrol show reservation"
        raise InputError(file, "it has no ReservationName", mend)
    return [_reservation(f"{file}, reservation {r['ReservationName']}", r, zone) for r in rows]


def _blocks(text: str) -> Iterator[str]:
    begins = [match.start() for match in re.finditer(r"(?<!\S)ReservationName=", text)]
    for begin, end in pairwise([*begins, len(text)]):
        yield text[begin:end]


def _reservation(where: str, row: Mapping[str, str], zone: ZoneInfo) -> SlurmReservation:
    missing = [key for key in _NEEDS if key not in row]
    if missing:
        raise InputError(where, f"it has no {missing[0]}", "give the whole output of scontrol")
    flags = row.get("Flags", "").split(",")
    left_out = [f"Flags={flag}" for flag in flags if flag in _NOT_READ]
    users, accounts = _names(row, "Users"), _names(row, "Accounts")
    for key, names in (("Users", users), ("Accounts", accounts)):
        if any(name.startswith("-") for name in names):
            left_out.append(f"{key}={row[key]}")
    if "MAINT" in flags:
        # Its users are the administrators who work on the nodes.
        users, accounts = (), ()
    try:
        nodes = tuple(hosts(row["Nodes"]))
    except ValueError:
        raise InputError(where, f"'{row['Nodes']}' is no list of nodes") from None
    return SlurmReservation(
        row["ReservationName"],
        _moment(where, row["StartTime"], zone),
        _moment(where, row["EndTime"], zone),
        nodes,
        tuple(name for name in users if not name.startswith("-")),
        tuple(name for name in accounts if not name.startswith("-")),
        tuple(left_out),
    )


def _names(row: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = row.get(key, "(null)")
    return () if text == "(null)" else tuple(name for name in text.split(",") if name)


def _moment(where: str, text: str, zone: ZoneInfo) -> str:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=zone).isoformat()
    except ValueError:
        raise InputError(where, f"'{text}' is no time", "as in 2026-01-12T08:00:00") from None


def reservation_tables(
    reservations: Sequence[SlurmReservation], nodes: Sequence[str], left_out: list[str]
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yields the kind and the fields of each table; adds what cannot be said to `left_out`.

    `nodes` are the names of the nodes in the order of their numbers.
    """
    number = {name: i for i, name in enumerate(nodes)}
    for each in reservations:
        left_out += [f"reservation {each.name}: {text}" for text in each.left_out]
        known = [number[name] for name in each.nodes if name in number]
        if not known:
            left_out.append(f"reservation {each.name}: no nodes with GPUs")
            continue
        fields: dict[str, object] = {
            "name": each.name,
            "start": each.start,
            "end": each.end,
            "nodes": known,
        }
        tenants = {"users": each.users, "accounts": each.accounts}
        fields |= {key: list(names) for key, names in tenants.items() if names}
        yield ("reservation" if any(tenants.values()) else "maintenance"), fields
