"""The one loop that asks a policy, checks its plan and applies it.

It knows no policy, no physics and no world: a simulated run, a live cluster and a replay all
pass through here.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from dovetail.control.world import World
from dovetail.core.errors import DovetailError, InputError
from dovetail.core.legality import violations
from dovetail.core.policy import Policy, name_of


def check_needs(policy: Policy, knows: frozenset[str], withheld_powers: frozenset[str]) -> None:
    """Raises InputError if the policy needs knowledge or powers that it is not given."""
    missing = sorted(policy.knows - knows)
    if missing:
        raise InputError(
            f"policy '{name_of(policy)}'",
            f"it needs to know: {', '.join(missing)}",
            "choose a forecast that supplies it, as in --forecast known, or another policy",
        )
    denied = sorted(policy.powers & withheld_powers)
    if denied:
        raise InputError(
            f"policy '{name_of(policy)}'", f"it uses powers withheld here: {', '.join(denied)}"
        )


def run(
    world: World,
    policy: Policy,
    *,
    memory: object = None,
    decision_s: list[float] | None = None,
    progress: Callable[[float], None] | None = None,
) -> object:
    """Runs a policy in a world until nothing is left to happen; returns its last memory.

    `memory` resumes a policy where an earlier run left it (default: as it begins).
    `decision_s` collects the wall time of each decision; `progress` is told the present time.
    """
    memory = policy.initial if memory is None else memory
    wake_at = float("inf")
    powers = policy.powers
    while world.advance(wake_at):
        view = world.observe()
        began = perf_counter()
        decision = policy.decide(view, memory)
        if decision_s is not None:
            decision_s.append(perf_counter() - began)
        wake_at = decision.wake_at
        if not wake_at > view.now:
            raise DovetailError(f"policy {name_of(policy)} asks to be woken in the past")
        draft = decision.draft
        why = () if draft is None else violations(view, draft.changes(), draft.occupancy, powers)
        if draft is None or why:
            view.plan.discard()
        else:
            world.apply(draft)
        if why:
            # The memory of a refused decision speaks of a plan that never ran.
            world.refuse(policy, decision, why)
        else:
            memory = decision.memory
            world.note(decision)
        if progress is not None:
            progress(view.now)
    return memory
