"""Requests of users at given times, for a live cluster played in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from dovetail.core.errors import InputError
from dovetail.live.store.intake import Intake


def request_at(
    t: float, verb: str, job: int = 0, node: int = -1
) -> tuple[float, Callable[[Intake], None]]:
    """Returns a call of `play`: a request about a job or a node; one that comes late is refused."""

    def request(intake: Intake) -> None:
        with suppress(InputError):
            intake.request(
                verb, jobs=(job,) if job else (), node=node, key=f"{t} {verb} {job} {node}"
            )

    return t, request
