"""What the paper does not say: load, other policies, skipping, tau, recurrence, logs, Theorem 1."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.algorithms.srpt_bound import worst_ratio
from papers.a_srpt_plan import (
    BASELINES,
    HIGH,
    LOGS,
    METHODS,
    NAMES,
    OTHERS,
    OURS,
    VARIED,
    Outcomes,
    Plan,
)
from papers.a_srpt_rows import CAUSES, less
from papers.a_srpt_trial import FOREST, KNOWN, seconds
from papers.finding import Finding

LOADED = (0.5, 1.0)
"""Loads between which A-SRPT is held to be the best of the paper's policies."""
HEAVINESS = {"heavy": "communication-heavy jobs", "light": "other jobs of several GPUs"}
TAU = 1.0
IDLE = 0.05


def rows(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields all of it."""
    yield from idle(outcomes, plan)
    yield from loads(outcomes, plan)
    yield from causes(outcomes, plan)
    yield from packing(outcomes, plan)
    yield from skipping(outcomes, plan)
    yield from waiting(outcomes, plan)
    yield from recurrence(outcomes, plan)
    yield from logs(outcomes, plan)
    yield from theorem_1(outcomes, plan)


def idle(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields what waiting for the virtual machine costs where nobody else waits."""
    sweep = plan.sweeps["load"]
    part = f"An idle cluster: a load of {IDLE:g}"
    for policy in ("wcs-subtime", "backfill"):
        gain = 1 - outcomes.mean(sweep.trials(IDLE, OURS)) / outcomes.mean(
            sweep.trials(IDLE, policy)
        )
        yield Finding(part, f"A-SRPT more than {NAMES[policy]}", -100 * gain, "%")
    ours, other = (
        {k: outcomes.mean(sweep.trials(IDLE, p), k) for k in ("flow_s", "waited_s")}
        for p in (OURS, "wcs-subtime")
    )
    for name, found in ((OURS, ours), ("wcs-subtime", other)):
        share = 100 * found["waited_s"] / found["flow_s"]
        yield Finding(part, f"of the flow time spent waiting, {NAMES[name]}", share, "%")
    costs = ours["waited_s"] > other["waited_s"] and ours["flow_s"] > other["flow_s"]
    why = "the rows above tell waiting from the rest"
    yield Finding(part, "waiting for the virtual machine costs", holds=costs, why=why)


def loads(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields who wins at which load, and how much longer jobs hold GPUs than at best."""
    for key in ("load", "load wide"):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            gains = outcomes.gains(sweep, x, BASELINES)
            best = min(gains, key=lambda p: gains[p])
            yield less(
                sweep.title, f"load {x:g}: less than {NAMES[best]}, the best", gains[best], None
            )
            for policy in (OURS, "wcs-duration", "backfill"):
                stretch = outcomes.mean(sweep.trials(x, policy), "stretch")
                what = f"load {x:g}: GPU-time held over asked, {NAMES[policy]}"
                yield Finding(sweep.title, what, stretch, "x")
            if LOADED[0] <= x <= LOADED[1]:
                what = f"load {x:g}: A-SRPT is the best of the paper's"
                yield Finding(sweep.title, what, holds=gains[best] >= -0.01, why=CAUSES)
        x = max(sweep.at)
        for words, said in HEAVINESS.items():
            ran = outcomes.mean(sweep.trials(x, OURS), f"{words} ran")
            what = f"load {x:g}: {said} ran, over their best, A-SRPT"
            yield Finding(sweep.title, what, ran, "x")


def causes(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields what makes A-SRPT lose where all jobs have several GPUs and submissions are kept."""
    part = "Why: no job on one GPU, submissions kept"
    for words, sweep in plan.causes.items():
        gains = outcomes.gains(sweep, 0.0, BASELINES)
        best = min(gains, key=lambda p: gains[p])
        yield less(part, f"{words}: less than {NAMES[best]}, the best", gains[best], None)
        for policy in (OURS, best):
            stretch = outcomes.mean(sweep.trials(0.0, policy), "stretch")
            what = f"{words}: GPU-time held over asked, {NAMES[policy]}"
            yield Finding(part, what, stretch, "x")


def packing(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields how A-SRPT stands against policies that pack jobs, which the paper leaves out."""
    part = "Policies not in the paper: A-SRPT's total less than theirs"
    for key, unit in (("load", "load"), ("load wide", "no job on one GPU, load")):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            for policy, gain in outcomes.gains(sweep, x, OTHERS).items():
                yield less(part, f"{unit} {x:g}: {NAMES[policy]}", gain, None)
    part = "The same order, packed or on the servers with most free GPUs"
    sweep = plan.sweeps["load"]
    for x in sweep.at:
        packed, spread = (outcomes.mean(sweep.trials(x, p)) for p in ("sjf", "wcs-duration"))
        yield Finding(part, f"load {x:g}: WCS-Duration over SJF", spread / packed, "x")


def skipping(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields how much of the gain over strict baselines comes from their strictness."""
    part = "The same order, strict or skipping what does not fit"
    for key, unit in (("load", "load"), ("load wide", "load, no job on one GPU")):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            for strict, skip in (("spjf", "wcs-duration"), ("spwf", "wcs-workload")):
                ratio = outcomes.mean(sweep.trials(x, strict)) / outcomes.mean(
                    sweep.trials(x, skip)
                )
                what = f"{x:g} {unit}: {NAMES[strict]} over {NAMES[skip]}"
                yield Finding(part, what, ratio, "x")


def waiting(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields what tau does, and what it does that all behind a waiting job wait too."""
    part = f"Waiting for a better placement at a load of {HIGH:g}: total flow time over tau = 1"
    base = outcomes.mean(plan.crowded(VARIED["tau = 1"]))
    for words, policy in VARIED.items():
        yield Finding(part, words, outcomes.mean(plan.crowded(policy)) / base, "x")


def recurrence(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields gains by how much of the trace recurs."""
    sweep = plan.sweeps["recurrence"]
    part = "Share of jobs in groups of five or more"
    for x in sweep.at:
        gains = outcomes.gains(sweep, x, BASELINES)
        best = min(gains, key=lambda p: gains[p])
        yield less(part, f"{x:.0f} %: less than {NAMES[best]}, the best", gains[best], None)
        unseen = 100 * outcomes.mean(sweep.trials(x, OURS), "unseen")
        yield Finding(part, f"{x:.0f} %: groups not seen", unseen, "% of jobs")


def logs(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields errors on real logs, of which users and requests are known but no groups."""
    for log in LOGS:
        for protocol in ("held out", "online"):
            found = {
                m: outcomes[plan.logs[log, m, protocol]]
                for m in METHODS
                if (log, m, protocol) in plan.logs
            }
            part = f"Prediction on a real log: {log}, {protocol}"
            for method, errors in found.items():
                yield Finding(part, f"mean error, {method}", errors["mean_s"], "s")
                yield Finding(part, f"within 10 %, {method}", 100 * errors["near"], "% of jobs")
            if "forest" in found:
                forest = found["forest"]["mean_s"]
                yield Finding(
                    part,
                    "forest's error at most the median's and the mean's",
                    holds=all(forest <= found[m]["mean_s"] for m in ("median", "mean")),
                    why="squared error follows a few long jobs; the median of like jobs does not",
                )


def theorem_1(outcomes: Outcomes, plan: Plan) -> Iterator[Finding]:
    """Yields the ratio that Theorem 1 allows, and what total completion time was over the least."""
    part = "Theorem 1: total completion time over the least possible, tau = 1"
    table = plan.base.trace().jobs
    kinds = set(zip(table.model.texts(), table.gpus.tolist(), strict=True))
    iterations = [seconds(*kind, plan.bed) for kind in sorted(kinds)]
    rho = max(longest / shortest for shortest, longest in iterations)
    spread = max(longest for _, longest in iterations) / min(least for least, _ in iterations)
    least = outcomes.mean(plan.bounds(), "completion_s")
    for words, told, error in (
        ("perfect prediction", KNOWN, 0.0),
        ("forest", FOREST, outcomes.mean(plan.seeded(OURS, FOREST), "error_iterations")),
    ):
        allowed = worst_ratio(
            gpus=plan.bed.gpus,
            widest_gpus=int(table.gpus.max()),
            placement_ratio=rho,
            iteration_ratio=spread,
            mean_error_iterations=error,
            tau=TAU,
        )
        measured = outcomes.mean(plan.seeded(OURS, told), "completion_s") / least
        yield Finding(part, f"allowed, {words}", allowed, "x")
        yield Finding(part, f"at most, measured, {words}", measured, "x")
        yield Finding(part, f"measured within what is allowed, {words}", holds=measured <= allowed)
    flow = outcomes.mean(plan.seeded(OURS)) / outcomes.mean(plan.bounds())
    yield Finding(part, "total flow time over its lower bound, forest", flow, "x")
