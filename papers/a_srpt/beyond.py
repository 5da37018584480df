"""What the paper does not vary: load, other policies, tau, recurrence, logs and the bound."""

from __future__ import annotations

from collections.abc import Iterator

from papers.a_srpt.claims import CAUSES, less, paper_claims
from papers.a_srpt.experiments import (
    BASELINES,
    FOREST,
    HIGH,
    KNOWN,
    LOGS,
    METHODS,
    NAMES,
    OTHERS,
    OURS,
    VARIED,
    ASrptExperiment,
    seconds,
)
from papers.a_srpt.theorem_bound import worst_ratio
from papers.frame.claim import Claim

LOADED = (0.5, 1.0)
"""Loads between which A-SRPT is held to be the best of the paper's policies."""
HEAVINESS = {"heavy": "communication-heavy jobs", "light": "other jobs of several GPUs"}
TAU = 1.0
IDLE = 0.05


def claims(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields the claims of the paper, then what it does not vary."""
    yield from paper_claims(plan)
    yield from idle(plan)
    yield from loads(plan)
    yield from causes(plan)
    yield from packing(plan)
    yield from skipping(plan)
    yield from waiting(plan)
    yield from recurrence(plan)
    yield from logs(plan)
    yield from theorem_1(plan)


def idle(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields what waiting for the virtual machine costs where nobody else waits."""
    sweep = plan.sweeps["load"]
    part = f"An idle cluster: a load of {IDLE:g}"
    for policy in ("wcs-subtime", "backfill"):
        gain = 1 - plan.flow_s(sweep.runs(IDLE, OURS)) / plan.flow_s(sweep.runs(IDLE, policy))
        yield Claim(part, f"A-SRPT more than {NAMES[policy]}", -100 * gain, "%")
    ours, other = (
        {k: plan.results.mean(sweep.runs(IDLE, p), k) for k in ("flow_s", "waited_s")}
        for p in (OURS, "wcs-subtime")
    )
    for name, found in ((OURS, ours), ("wcs-subtime", other)):
        share = 100 * found["waited_s"] / found["flow_s"]
        yield Claim(part, f"of the flow time spent waiting, {NAMES[name]}", share, "%")
    costs = ours["waited_s"] > other["waited_s"] and ours["flow_s"] > other["flow_s"]
    why = "the rows above tell waiting from the rest"
    yield Claim(part, "waiting for the virtual machine costs", holds=costs, why=why)


def loads(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields the best policy by load, and how much longer jobs occupy GPUs than at best."""
    for key in ("load", "load wide"):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            gains = plan.gains(sweep, x, BASELINES)
            best = min(gains, key=lambda p: gains[p])
            yield less(
                sweep.title, f"load {x:g}: less than {NAMES[best]}, the best", gains[best], None
            )
            for policy in (OURS, "wcs-duration", "backfill"):
                stretch = plan.results.mean(sweep.runs(x, policy), "stretch")
                what = f"load {x:g}: GPU-time held over asked, {NAMES[policy]}"
                yield Claim(sweep.title, what, stretch, "x")
            if LOADED[0] <= x <= LOADED[1]:
                what = f"load {x:g}: A-SRPT is the best of the paper's"
                yield Claim(sweep.title, what, holds=gains[best] >= -0.01, why=CAUSES)
        x = max(sweep.at)
        for words, label in HEAVINESS.items():
            ran = plan.results.mean(sweep.runs(x, OURS), f"{words} ran")
            what = f"load {x:g}: {label} ran, over their best, A-SRPT"
            yield Claim(sweep.title, what, ran, "x")


def causes(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields what makes A-SRPT lose where all jobs have several GPUs and submissions are kept."""
    part = "Why: no job on one GPU, submissions kept"
    for words, sweep in plan.causes.items():
        gains = plan.gains(sweep, 0.0, BASELINES)
        best = min(gains, key=lambda p: gains[p])
        yield less(part, f"{words}: less than {NAMES[best]}, the best", gains[best], None)
        for policy in (OURS, best):
            stretch = plan.results.mean(sweep.runs(0.0, policy), "stretch")
            what = f"{words}: GPU-time held over asked, {NAMES[policy]}"
            yield Claim(part, what, stretch, "x")


def packing(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields how A-SRPT stands against policies that pack jobs, which the paper leaves out."""
    part = "Policies not in the paper: A-SRPT's total less than theirs"
    for key, unit in (("load", "load"), ("load wide", "no job on one GPU, load")):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            for policy, gain in plan.gains(sweep, x, OTHERS).items():
                yield less(part, f"{unit} {x:g}: {NAMES[policy]}", gain, None)
    part = "The same order, packed or on the servers with most free GPUs"
    sweep = plan.sweeps["load"]
    for x in sweep.at:
        packed, spread = (plan.flow_s(sweep.runs(x, p)) for p in ("sjf", "wcs-duration"))
        yield Claim(part, f"load {x:g}: WCS-Duration over SJF", spread / packed, "x")


def skipping(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields how much of the gain over strict baselines comes from their strictness."""
    part = "The same order, strict or skipping what does not fit"
    for key, unit in (("load", "load"), ("load wide", "load, no job on one GPU")):
        sweep = plan.sweeps[key]
        for x in sweep.at:
            for strict, skip in (("spjf", "wcs-duration"), ("spwf", "wcs-workload")):
                ratio = plan.flow_s(sweep.runs(x, strict)) / plan.flow_s(sweep.runs(x, skip))
                what = f"{x:g} {unit}: {NAMES[strict]} over {NAMES[skip]}"
                yield Claim(part, what, ratio, "x")


def waiting(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields what tau does, and what it does that all behind a waiting job wait too."""
    part = f"Waiting for a better placement at a load of {HIGH:g}: total flow time over tau = 1"
    base = plan.flow_s(plan.crowded(VARIED["tau = 1"]))
    for words, policy in VARIED.items():
        yield Claim(part, words, plan.flow_s(plan.crowded(policy)) / base, "x")


def recurrence(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields gains by how much of the trace recurs."""
    sweep = plan.sweeps["recurrence"]
    part = "Share of jobs in groups of five or more"
    for x in sweep.at:
        gains = plan.gains(sweep, x, BASELINES)
        best = min(gains, key=lambda p: gains[p])
        yield less(part, f"{x:.0f} %: less than {NAMES[best]}, the best", gains[best], None)
        unseen = 100 * plan.results.mean(sweep.runs(x, OURS), "unseen")
        yield Claim(part, f"{x:.0f} %: groups not seen", unseen, "% of jobs")


def logs(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields errors on real logs, of which users and requests are known but no groups."""
    for log in LOGS:
        for protocol in ("held out", "online"):
            found = {
                m: plan.results[plan.logs[log, m, protocol]]
                for m in METHODS
                if (log, m, protocol) in plan.logs
            }
            part = f"Prediction on a real log: {log}, {protocol}"
            for method, errors in found.items():
                yield Claim(part, f"mean error, {method}", errors["mean_s"], "s")
                yield Claim(part, f"within 10 %, {method}", 100 * errors["near"], "% of jobs")
            if "forest" in found:
                forest = found["forest"]["mean_s"]
                yield Claim(
                    part,
                    "forest's error at most the median's and the mean's",
                    holds=all(forest <= found[m]["mean_s"] for m in ("median", "mean")),
                    why="squared error follows a few long jobs; the median of like jobs does not",
                )


def theorem_1(plan: ASrptExperiment) -> Iterator[Claim]:
    """Yields the ratio that Theorem 1 allows, and what total completion time was over the least."""
    part = "Theorem 1: total completion time over the least possible, tau = 1"
    table = plan.base.trace().jobs
    kinds = set(zip(table.model.texts(), table.gpus.tolist(), strict=True))
    iterations = [seconds(*kind, plan.cluster) for kind in sorted(kinds)]
    rho = max(longest / shortest for shortest, longest in iterations)
    spread = max(longest for _, longest in iterations) / min(least for least, _ in iterations)
    least = plan.results.mean(plan.bounds(), "completion_s")
    for words, told, error in (
        ("perfect prediction", KNOWN, 0.0),
        ("forest", FOREST, plan.results.mean(plan.seeded(OURS, FOREST), "error_iterations")),
    ):
        allowed = worst_ratio(
            gpus=plan.cluster.gpus,
            widest_gpus=int(table.gpus.max()),
            placement_ratio=rho,
            iteration_ratio=spread,
            mean_error_iterations=error,
            tau=TAU,
        )
        measured = plan.results.mean(plan.seeded(OURS, told), "completion_s") / least
        yield Claim(part, f"allowed, {words}", allowed, "x")
        yield Claim(part, f"at most, measured, {words}", measured, "x")
        yield Claim(part, f"measured within what is allowed, {words}", holds=measured <= allowed)
    flow = plan.flow_s(plan.seeded(OURS)) / plan.flow_s(plan.bounds())
    yield Claim(part, "total flow time over its lower bound, forest", flow, "x")
