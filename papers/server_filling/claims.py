"""The claims of the ServerFilling paper beside the authors' own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from papers.frame.claim import Claim, near, ordered
from papers.server_filling.experiments import LEAST, ServerFillingExperiment
from papers.server_filling.published import (
    EXPONENTIAL,
    FIRST,
    GREEDY,
    HYPEREXPONENTIAL,
    MEANS,
    ONE,
    SRPT,
)

BAND = {EXPONENTIAL: 0.1, HYPEREXPONENTIAL: 0.15}
"""Of ratios: theirs are means over far more jobs than ours."""
ABSOLUTE = "a mean over fewer jobs than the authors played, and rare jobs decide it"


def figure_4(planned: ServerFillingExperiment) -> Iterator[Claim]:
    """Yields response times over those of one fast server, by load, and their order."""
    for sizes, load in planned.at_loads():
        part, known = f"Figure 4, {sizes}, load {load:g}", MEANS[sizes, load]
        for policy in (SRPT, FIRST):
            run = planned.run(policy, sizes, load)
            theirs = known[policy] / known[ONE]
            spread = BAND[sizes] * (1 if policy == SRPT else 2)
            yield near(part, f"{policy} over SRPT-1", planned.over_one(run), "x", theirs, spread)
        ours = planned.response(planned.run(SRPT, sizes, load))
        yield Claim(part, f"{SRPT}, mean response", ours, "", known[SRPT], why=ABSOLUTE)
        first = planned.response(planned.run(FIRST, sizes, load))
        yield ordered(part, f"{SRPT} before {FIRST}", ours, first)


def towards_one(planned: ServerFillingExperiment) -> Iterator[Claim]:
    """Yields that the ratio to one fast server falls as the load grows (theorem 5.1)."""
    for sizes in (EXPONENTIAL, HYPEREXPONENTIAL):
        ratios = [planned.over_one(planned.run(SRPT, sizes, load)) for load in planned.loads]
        if len(ratios) > 1:
            falls = all(a >= b for a, b in pairwise(ratios))
            words = f"{SRPT} over SRPT-1 falls with the load, {sizes}"
            yield Claim("Theorem: optimal in heavy traffic", words, ratios[-1], "x", holds=falls)


def greedy(planned: ServerFillingExperiment) -> Iterator[Claim]:
    """Yields the two greedy policies, which leave GPUs idle behind wide jobs."""
    for load, known in GREEDY.items():
        part = f"Section 7, exponential, load {load:g}"
        for policy, theirs in known.items():
            ours = planned.response(planned.run(policy, EXPONENTIAL, load))
            yield near(part, policy, ours, "", theirs, 0.15)
            best = planned.response(planned.run(SRPT, EXPONENTIAL, load))
            yield ordered(part, f"{SRPT} before {policy}", best, ours)


def without_lengths(planned: ServerFillingExperiment) -> Iterator[Claim]:
    """Yields ServerFilling-Gittins over the Gittins policy on one fast server (theorem 5.2)."""
    ratios = []
    for load in planned.gittins_loads:
        run = planned.without_lengths(load)
        ratios.append(planned.over_one(run, LEAST))
        part = f"Theorem for unknown sizes, load {load:g}"
        yield Claim(part, "serverfilling-gittins over Gittins-1", ratios[-1], "x")
        first = planned.run(FIRST, HYPEREXPONENTIAL, load, planned.gittins_jobs)
        ours, theirs = planned.response(run), planned.response(first)
        yield ordered(part, f"serverfilling-gittins before {FIRST}", ours, theirs)
    if len(ratios) > 1:
        words = "the ratio falls with the load"
        yield Claim("Theorem for unknown sizes", words, holds=ratios[-1] <= ratios[0])
