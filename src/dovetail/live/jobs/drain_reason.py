"""Why a node or a GPU is drained: the reason, who said so, and since when."""

from __future__ import annotations

import json
from dataclasses import dataclass

USER = "user"
REASON_MAX = 200


@dataclass(frozen=True, slots=True)
class DrainReason:
    """Why a node (`gpu` is -1) or one GPU of it takes no new jobs.

    `source` is who drains: a `user`, a `device` by its driver, or a script of the site (`check`,
    `prolog`, `epilog`); `by` the name of the user, or what found the fault. A `check` takes its
    drain back when it succeeds again; all others stay until a user undoes them.
    """

    gpu: int = -1
    source: str = USER
    reason: str = ""
    by: str = ""
    since_s: float = 0.0

    @property
    def text(self) -> str:
        """The reason and who gave it: `ECC errors (ann)`; what is not known is left out."""
        return " ".join(filter(None, (self.reason, f"({self.by})" if self.by else "")))


def argument_of(note: DrainReason) -> str:
    """Returns the argument of a request to drain or undrain; empty for a node without a word."""
    said = {"gpu": note.gpu, "reason": note.reason, "by": note.by}
    default = {"gpu": -1, "reason": "", "by": ""}
    changed = {name: value for name, value in said.items() if value != default[name]}
    return json.dumps(changed, sort_keys=True) if changed else ""


def note_of(argument: str, now: float) -> DrainReason:
    """Returns the note in the argument of a request of a user."""
    said = json.loads(argument) if argument else {}
    return DrainReason(
        int(said.get("gpu", -1)), USER, str(said.get("reason", "")), str(said.get("by", "")), now
    )


def stored(node: int, note: DrainReason) -> list[object]:
    """Returns a note as the journal has it."""
    return [node, note.gpu, note.source, note.reason, note.by, note.since_s]


def restored(values: object) -> tuple[int, DrainReason] | None:
    """Returns a node and its note as the journal has them; None if that is damaged."""
    match values:
        case [int(node), int(gpu), str(source), str(reason), str(by), float() | int() as since_s]:
            return node, DrainReason(gpu, source, reason, by, float(since_s))
    return None
