"""The rows of a comparison: each policy with what it is told of lengths.

With `--forecast available`, policies that use lengths get a second row that is told the true ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.policy import Policy, parse_policy, spell
from dovetail.forecast.available import AVAILABLE, lengths_of, lengths_words, resolved
from dovetail.forecast.forecasts import source_of
from dovetail.record.result import IF_KNOWN, KNOWN_SUFFIX, POLICY, RECORDED


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row: its name, the policy as text and as object, its forecast and its kind."""

    name: str
    text: str
    policy: Policy
    forecast: str
    kind: str = POLICY


def compared_rows(policies: Sequence[str], forecast: str, jobs: JobTable) -> dict[str, ComparedRow]:
    """Returns the rows by name, those with known lengths last. Raises InputError."""
    if not policies:
        raise InputError("--policies", "specify at least one policy", "as in fifo,srtf")
    rows: dict[str, ComparedRow] = {}
    told: list[ComparedRow] = []
    for text in policies:
        policy = parse_policy(text)
        name = spell(policy)
        if name in rows or name == RECORDED:
            raise InputError("--policies", f"'{name}' is named twice")
        if source_of(forecast) != AVAILABLE:
            rows[name] = ComparedRow(name, text, policy, forecast)
            continue
        rows[name] = ComparedRow(name, text, policy, resolved(forecast, policy, jobs))
        if "length" in policy.knows:
            told.append(ComparedRow(name + KNOWN_SUFFIX, text, policy, "known", IF_KNOWN))
    return rows | {row.name: row for row in told}


def chosen(option: str, text: str, rows: Mapping[str, ComparedRow]) -> str:
    """Returns the name of the row that an option names as a policy. Raises InputError."""
    name = spell(parse_policy(text))
    if name not in rows:
        raise InputError(option, f"'{name}' is not one of the compared policies")
    return name


def told_lengths(forecast: str, rows: Mapping[str, ComparedRow], jobs: JobTable) -> list[str]:
    """Returns a note on the lengths that the rows are told, where that depends on the policy."""
    if source_of(forecast) != AVAILABLE:
        return []
    whom: dict[str, dict[str, None]] = {}
    for row in rows.values():
        if row.kind == POLICY and lengths_of(row.policy, row.forecast, jobs) != "unknown":
            told = lengths_words(row.policy, row.forecast, jobs)
            whom.setdefault(told, {})[row.name.partition(":")[0]] = None
    if not whom:
        return []
    parts = [f"{told} for {', '.join(names)}" for told, names in sorted(whom.items())]
    known = any(row.kind == IF_KNOWN for row in rows.values())
    more = " Rows with 'known' are told the true lengths, which no site has." if known else ""
    return [f"Lengths are {'; '.join(parts)}.{more}"]
