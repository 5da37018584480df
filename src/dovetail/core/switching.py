"""The cost of a start, a move, a resize or a shrink, as policies and simulations assume it.

The cost is the seconds that a job occupies its GPUs without progress after it is placed. It is a
model of its own, the same for every policy of a comparison (ALGORITHMS section 0). With a runtime
like CoDDL's a job that keeps some of its GPUs trains on there while new ones are made ready, then
switches within milliseconds (section 2.4; AFS section 4.3).

The simulated world, synthetic jobs and the controller of a live cluster use it: `placed_how` is why
a job is placed, `Switching` the cost, and `delay_s` the time until the job makes progress again. A
real elastic job is charged nothing in advance for a resize: it trains on, its pause is measured.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from math import isnan
from pathlib import Path
from typing import NamedTuple

from dovetail.core.errors import InputError, nearest
from dovetail.core.messages import ADJUST, LIMIT, MOVE, RESIZE, RESUME, START
from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S, RESTART_S

RECONFIGURE_S = 0.004
"""One update of the communication stack of a job whose new GPUs are ready (AFS section 4.3)."""
PREPARE_S = 10.0
"""To load the graph and fetch the parameters on new GPUs; the paper gives no number."""
LIMIT_S = 3.6
"""To put a worker under another compute limit, stable over models (GIMBAL section 4.2)."""
ADJUST_S = 0.0
"""To train in another manner on the same GPUs: with other steps, or beside a partner that joins.

Nothing starts anew; SJF-BSBF (section 4) counts what more steps take, and nothing for the change.
Live, a plain program and one that only gets a neighbour hear nothing. Workers that get other steps
enter another generation of the same members at the end of an iteration, as in a resize, whose
pause is of milliseconds (`RECONFIGURE_S`; docs/claims/performance.md); it was not measured apart.
"""
WITHOUT_NUMBER = ("none", "one-by-one")
BY_PROFILE = "per-start:profile"
"""The word for start-up times as they were measured, model by model (Muri's artifact)."""
STARTS = (START, RESUME, MOVE)
RESTARTS = (RESUME, MOVE, RESIZE)
"""What takes a job with a price of its own a restart of its program."""
KEEPS_TRAINING = (RESIZE, ADJUST, LIMIT)
"""Changes of a running job that do not end a switch under way."""


def placed_how(before: Placement | None, after: Placement, *, started_before: bool = True) -> str:
    """Returns why a job is placed: one of `core.messages.HOW`."""
    if before is None:
        return RESUME if started_before else START
    if before.gpus != after.gpus:
        return RESIZE
    if before.moves_to(after):
        return MOVE
    return ADJUST if before.fractions == after.fractions else LIMIT


def own_cost_s(how: str, cost_s: float, restart_s: float) -> float:
    """Returns the cost of placing a job, given that of a run without jobs of their own price.

    `restart_s` is the price of a job that has one (`JobRequest.restart_s`), else 0.
    """
    return float(restart_s) if restart_s and how in RESTARTS else cost_s


def delay_s(how: str, cost_s: float, *, wait_s: float = 0.0, busy_s: float = 0.0) -> float:
    """Returns in how many seconds a job makes progress that is placed now.

    `wait_s` is how long the GPUs it gains are still in use, `busy_s` how long its switch under way
    still takes (0 or less: none is). A job that keeps training completes that switch.
    """
    delay = wait_s + cost_s
    return max(delay, busy_s) if how in KEEPS_TRAINING else delay


class Expansion(NamedTuple):
    """A running job trains on `training`, a part of its placement; the rest is made ready.

    All of its placement trains from about `ready_s` on; live this is an estimate, which may pass.
    """

    training: Placement
    ready_s: float


class SwitchCost(NamedTuple):
    """What it costs a job to be placed, apart: seconds in which it makes no progress, in all, and
    seconds until all of its GPUs train, the time in which some are made ready included."""

    pause_s: float
    effect_s: float


@dataclass(frozen=True, slots=True)
class Switching:
    """Seconds without progress after a first start, a resumption, a move, a resize, a change of
    steps, samples or phase on the same GPUs (free by default), and a change of GPU limits.

    `prepare_s` is how long an elastic job trains on as before while GPUs it did not have are
    made ready; one that keeps none of its GPUs then pays `move_s`. `cancels`: a newer
    order replaces one under way; if not, the orders of a job are carried out one after another,
    and the GPUs it gives up are free only then. With `by_profile` a start, a resumption or
    a move takes so many times the start-up of the job's model on its GPUs, if that is known.
    """

    start_s: float = 0.0
    resume_s: float = RESTART_S
    move_s: float = RESTART_S
    resize_s: float = RESTART_S
    adjust_s: float = ADJUST_S
    limit_s: float = LIMIT_S
    prepare_s: float = 0.0
    cancels: bool = True
    by_profile: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not 0 <= value < NEVER_S:
                raise InputError("--switching", f"{f.name} must be 0 or more, not {value}")

    def cost_s(self, how: str, startup_s: float = float("nan")) -> float:
        """Returns the cost of placing a job for this reason, given its start-up if known."""
        if self.by_profile and how in STARTS and not isnan(startup_s):
            return self.by_profile * startup_s
        return {
            START: self.start_s,
            RESUME: self.resume_s,
            MOVE: self.move_s,
            RESIZE: self.resize_s,
            ADJUST: self.adjust_s,
            LIMIT: self.limit_s,
        }[how]

    def pause_s(self, how: str, *, same_gpus: bool) -> float:
        """Returns the pause of a job that trains on while its new GPUs are made ready.

        `same_gpus`: it trains on the GPUs it had, so that nothing joins or leaves.
        """
        pause = 0.0 if same_gpus else self.resize_s
        return pause + {LIMIT: self.limit_s, ADJUST: self.adjust_s}.get(how, 0.0)

    def overlapped(self) -> Switching:
        """Returns the model in which every resize is an expansion, as it is of real workers.

        The seconds of a resize pass while the job trains on; its pause is measured, not charged.
        """
        return replace(self, prepare_s=self.prepare_s or self.resize_s, resize_s=0.0, cancels=True)

    @staticmethod
    def parse(text: str) -> Switching:
        """Returns the model for words such as `none`, `restart:30`, `limit:3.6`, or for a file.

        `per-start:profile` takes each model's start-up as measured. Words may be joined by
        commas; `restart:30,prepared:10` is CoDDL's runtime, and with `one-by-one` it cannot
        cancel. A TOML file has the fields of this class. Raises InputError.
        """
        if text.endswith(".toml"):
            return _from_file(Path(text))
        costs = {"start_s": 0.0, "resume_s": 0.0, "move_s": 0.0, "resize_s": 0.0}
        touched = {
            "none": ("limit_s",),
            "restart": ("resume_s", "move_s", "resize_s"),
            "per-start": ("start_s", "resume_s", "move_s"),
            "per-resize": ("resize_s",),
            "prepared": (),
            "limit": ("limit_s",),
            "one-by-one": (),
        }
        words = text.split(",")
        names = [word.partition(":")[0] for word in words]
        for word, name in zip(words, names, strict=True):
            _, colon, number = word.partition(":")
            if name not in touched:
                raise InputError("--switching", f"unknown model '{name}'", nearest(name, touched))
            if names.count(name) > 1 or (name == "none" and len(names) > 1):
                raise InputError("--switching", f"'{word}' contradicts another word of '{text}'")
            if colon and name in WITHOUT_NUMBER:
                raise InputError("--switching", f"'{name}' takes no number, not '{word}'")
            usual_s = {"none": 0.0, "limit": LIMIT_S}.get(name, RESTART_S)
            if word == BY_PROFILE:
                costs["by_profile"], number = 1.0, ""
            for cost in touched[name]:
                costs[cost] = _seconds(word, number, usual_s)
            if name == "prepared":
                costs["prepare_s"] = _seconds(word, number, PREPARE_S)
        if "prepare_s" in costs:
            costs["resize_s"] = RECONFIGURE_S
        return Switching(**costs, cancels="one-by-one" not in words)

    def for_restart(self, restart_s: float) -> Switching:
        """Returns the model for a job whose restarts cost this: it trains on nowhere meanwhile."""
        return replace(
            self,
            resume_s=restart_s,
            move_s=restart_s,
            resize_s=restart_s,
            prepare_s=0.0,
            by_profile=0.0,
        )

    def scaled(self, factor: float) -> Switching:
        """Returns the model in which every cost is `factor` times as high."""
        costs = {
            f.name: getattr(self, f.name) * factor for f in fields(self) if f.name != "cancels"
        }
        return replace(self, **costs)

    def __str__(self) -> str:
        costs = [f for f in fields(self) if f.name.endswith("_s")]
        parts = [f"{f.name.removesuffix('_s')} {getattr(self, f.name):g} s" for f in costs]
        if self.by_profile:
            parts.append(f"{self.by_profile:g} x the model's start-up where known")
        return ", ".join(parts if self.cancels else [*parts, "one order after another"])


def _seconds(word: str, number: str, usual_s: float) -> float:
    try:
        return float(number) if number else usual_s
    except ValueError:
        wants = "a number of seconds" + (", or 'profile'" if word.startswith("per-start") else "")
        raise InputError("--switching", f"'{word}' wants {wants}") from None


def _from_file(path: Path) -> Switching:
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(str(path), f"cannot be read as TOML: {error}") from None
    known = [f.name for f in fields(Switching)]
    for name, value in table.items():
        if name not in known:
            raise InputError(str(path), f"unknown field '{name}'", nearest(name, known))
        if name == "cancels" and not isinstance(value, bool):
            raise InputError(str(path), "field 'cancels' wants true or false")
        if name != "cancels" and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(str(path), f"field '{name}' wants a number of seconds")
    return Switching(**table)
