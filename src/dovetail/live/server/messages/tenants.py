"""The tenants of the cluster: queues, accounts and users, and where each stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ListTenants:
    """Request the tenants of the cluster."""

    verb: ClassVar[str] = "tenants"


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant; `path` are its names from the top of the tree.

    `guaranteed` is as in the cluster's file; `most_gpus` is its limit on GPUs of any type, infinite
    for none. It `deserves` GPUs by what all tenants hold and wait for now. `used_gpus` is its mean
    use, where use counts half after the half-life; -1 if the policy counts none.
    """

    path: tuple[str, ...]
    tier: str
    weight: float
    guaranteed: str
    most_gpus: float
    deserves_gpus: float
    held_gpus: int
    waiting_gpus: int
    used_gpus: float = -1.0


@dataclass(frozen=True, slots=True)
class TenantList:
    """The tenants in order of their names, level by level; `half_life_s` 0 if no use is counted."""

    now_s: float
    half_life_s: float
    tenants: tuple[TenantRow, ...]


"""All, but for users without jobs and without use."""
