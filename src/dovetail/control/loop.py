"""The one loop that asks a policy, checks its plan and applies it.

It knows no policy, no physics and no world: a simulated run, a live cluster and a replay all
pass through here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from dovetail.control.world import World
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.legality import violations
from dovetail.core.policy import Decision, Policy, name_of, takes_parts
from dovetail.core.restarts import next_growth_s
from dovetail.core.view import Changes, View, show


def check_needs(
    policy: Policy,
    knows: frozenset[str],
    withheld_powers: frozenset[str],
    *,
    supplier: str = "known",
) -> None:
    """Raises InputError if the policy needs knowledge or powers that are not available.

    `supplier` is the forecast of this world that supplies most.
    """
    missing = sorted(policy.knows - knows)
    if missing:
        raise InputError(
            f"policy '{name_of(policy)}'",
            f"it needs to know: {', '.join(missing)}",
            f"choose a forecast that supplies it, as in --forecast {supplier}, or another policy",
        )
    denied = sorted(policy.powers & withheld_powers)
    if denied:
        raise InputError(
            f"policy '{name_of(policy)}'", f"it uses powers withheld here: {', '.join(denied)}"
        )


def check_parts(policy: Policy, jobs: JobTable) -> None:
    """Raises InputError if jobs ask for parts of GPUs, or for none, and the policy counts whole."""
    if jobs.has_parts and not takes_parts(policy):
        parts = int(((jobs.gpu_part > 0) & (jobs.gpu_part < 1)).sum())
        none = int((jobs.gpu_part == 0).sum())
        raise InputError(
            f"policy '{name_of(policy)}'",
            f"it counts whole GPUs; {parts:,} jobs ask for parts of GPUs and {none:,} for none",
            "choose another policy, such as fifo, backfill or srtf, or import the log with "
            "--fractions round-up --cpu-only reject",
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

    `memory` is that of an earlier run (default: the initial one). The world refuses a decision that
    raises, comes too late or is not legal; the plan then stays. `decision_s` collects the wall time
    of each decision; `progress` is called with the present time.
    """
    memory = policy.initial if memory is None else memory
    wake_at, powers = float("inf"), policy.powers
    missed: Changes | None = None
    while world.advance(wake_at):
        view = world.observe()
        if missed is not None:
            show(view, changes=missed.then(view.changes).net(view.waiting))
        changes = view.changes
        decision, took_s, why, cause = _ask(policy, powers, view, memory)
        if decision_s is not None:
            decision_s.append(took_s)
        if not why and not world.in_time(took_s):
            why = (f"it took {took_s:.3g} s to decide",)
        if decision is None or why:
            # The policy may have raised in the middle of a draft: rebuild from what runs.
            view.plan.restore()
            # The memory stays too: that of a refused decision describes a plan that never ran.
            missed = changes
            wake_at = world.refuse(policy, why, cause)
        else:
            missed = None
            if decision.draft is None:
                view.plan.discard()
            else:
                world.apply(decision.draft)
            memory, wake_at = decision.memory, decision.wake_at
            if "resize" in powers:
                # Nothing else may happen when a restart begins to pay.
                wake_at = min(wake_at, next_growth_s(view))
            world.note(decision)
        if progress is not None:
            progress(view.now)
    return memory


Answer = tuple[Decision | None, float, Sequence[str], Exception | None]
"""A decision, its seconds, why it is refused, and the exception of the policy."""


def _ask(policy: Policy, powers: frozenset[str], view: View, memory: object) -> Answer:
    """Returns the policy's decision, checked. Never raises an Exception of the policy."""
    began, took_s = perf_counter(), 0.0
    why: Sequence[str] = ()
    try:
        decision = policy.decide(view, memory)
        took_s = perf_counter() - began
        draft = decision.draft
        if not decision.wake_at > view.now:
            why = ("it asks to be woken in the past",)
        elif draft is not None and not view.plan.is_open(draft):
            why = ("its draft is not the last one it began",)
        elif draft is not None:
            why = violations(view, draft.changes(), draft.occupancy, powers)
        return decision, took_s, why, None
    except Exception as error:
        took_s = took_s or perf_counter() - began
        return None, took_s, (f"it raised {type(error).__name__}: {error}",), error
