"""The model zoo: every profile we ship, by name, and lookup by the names traces use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from dovetail.core.errors import InputError, nearest
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet, parse_profiles
from dovetail.physics.zoo.provenance import shipped_text

FAMILIES = ("pollux", "muri", "elasticflow", "afs", "asrpt")
"""The sets we ship. A short name that two of them have means that of the earlier one."""


@lru_cache(maxsize=1)
def shipped_sets() -> tuple[ProfileSet, ...]:
    """Returns the profile sets of the package, in the order of `FAMILIES`."""
    names = [f"{family}.toml" for family in FAMILIES]
    return tuple(parse_profiles(shipped_text(name), where=name) for name in names)


class Catalogue:
    """Finds profiles by full name, short name or alias, whatever the case."""

    def __init__(self, sets: Iterable[ProfileSet]) -> None:
        self.profiles: Mapping[str, ModelProfile] = MappingProxyType(
            {profile.full_name: profile for one in sets for profile in one.profiles}
        )
        self._by_name: dict[str, ModelProfile] = {}
        profiles = self.profiles.values()
        names = (
            *((profile.full_name, profile) for profile in profiles),
            *((profile.name, profile) for profile in profiles),
            *((alias, profile) for profile in profiles for alias in profile.aliases),
        )
        # The first profile with a name has it: full names before short names before aliases.
        for name, profile in names:
            self._by_name.setdefault(name.lower(), profile)

    def find(self, name: str, *, family: str = "") -> ModelProfile | None:
        """Returns the profile of a name, that of `family` if it has one; None if unknown."""
        if family:
            mine = self._in_family(name.lower(), family)
            if mine is not None:
                return mine
        return self._by_name.get(name.lower())

    def _in_family(self, name: str, family: str) -> ModelProfile | None:
        for profile in self.profiles.values():
            known = (profile.name, profile.full_name, *profile.aliases)
            if profile.family == family and name in (other.lower() for other in known):
                return profile
        return None

    def lookup(self, name: str, *, family: str = "") -> ModelProfile:
        """Returns the profile of a name. Raises InputError that names the nearest one."""
        profile = self.find(name, family=family)
        if profile is None:
            hint = nearest(name, self._by_name)
            if hint.startswith("known"):
                hint = "`dovetail models` lists what is known"
            raise InputError(f"model '{name}'", "is not in the zoo", hint)
        return profile


@lru_cache(maxsize=1)
def shipped() -> Catalogue:
    """Returns the catalogue of the shipped sets."""
    return Catalogue(shipped_sets())


def zoo() -> Mapping[str, ModelProfile]:
    """Returns every shipped profile by its full name (`pollux/bert`)."""
    return shipped().profiles


def lookup(name: str, *, family: str = "") -> ModelProfile:
    """Returns a shipped profile by full name, short name or a trace's name. Raises InputError."""
    return shipped().lookup(name, family=family)


@lru_cache(maxsize=65536)
def seconds_per_iteration(model: str, gpus: int, family: str = "") -> float | None:
    """Returns the seconds of one iteration at the default batch, well placed; None if unknown.

    Under weak scaling (Muri) an iteration on n GPUs is n times the work of one on a single GPU.
    """
    profile = shipped().find(model, family=family)
    return None if profile is None else iteration_s(profile, gpus=gpus)
