"""The tables of the comparison: all systems, the best by place, and conclusions that survive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dovetail.core.units import HOUR_S
from dovetail.study.uncertainty import Interval
from papers.frame.claim import HOLDS, Claim, Table
from papers.systems.experiments import (
    BASE,
    BASELINE,
    CLAIMS,
    CLASSES,
    EXCLUSIVE_HOST,
    PAPERS,
    System,
    Variant,
)
from papers.systems.results import HEAVY, OPEN, REVERSED, SystemsExperiment, verdict

TABLE_HEADS = (
    *("policy", "knows", "may", "mean JCT", "95 %", f"over {BASELINE}", "95 %", "x bound"),
    *("99 %", "slowdown", "met", "makespan", "switching"),
)


def ranked(experiment: SystemsExperiment) -> list[System]:
    """Returns the systems, those first that finish the mean job soonest."""
    return sorted(experiment.systems, key=lambda s: experiment.system_ratio(s.name, BASELINE).value)


def everybody(experiment: SystemsExperiment) -> Table:
    """Returns the one table over everything."""
    rows = [_row(experiment, system) for system in ranked(experiment)]
    title = (
        f"All policies, load {HEAVY:g}: mean JCT over {experiment.windows_in_all} windows of "
        f"{experiment.jobs} jobs"
    )
    return Table("everybody", title, TABLE_HEADS, rows, words=3)


def _row(experiment: SystemsExperiment, system: System) -> list[str]:
    name = system.name
    policy = system.policy
    jct = _scaled(experiment.mean_jct(name), 1 / HOUR_S)
    ratio = experiment.system_ratio(name, BASELINE)
    bound = experiment.over_bound(system)
    return [
        name,
        ", ".join(sorted(policy.knows)) or "nothing",
        ", ".join(["start", *sorted(policy.powers)]),
        f"{jct.value:.2f} h",
        _between(jct, "{:.1f}"),
        f"{ratio.value:.2f}",
        _between(ratio, "{:.2f}"),
        "" if bound is None else f"{bound:.2f}",
        f"{experiment.system_ratio(name, BASELINE, 'p99_jct_s').value:.2f}",
        f"{experiment.system_ratio(name, BASELINE, 'slowdown').value:.2f}",
        f"{experiment.units(name, 'met').mean():.0%}",
        f"{experiment.system_ratio(name, BASELINE, 'makespan_s').value:.2f}",
        f"{experiment.units(name, 'switching').mean():.1%}",
    ]


def _scaled(interval: Interval, by: float) -> Interval:
    low, high = interval.low, interval.high
    return Interval(
        interval.value * by, None if low is None else low * by, None if high is None else high * by
    )


def _between(interval: Interval, form: str) -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f"{form.format(interval.low)} to {form.format(interval.high)}"


PLACES = ("all", *CLASSES, "without lengths")


def winners(experiment: SystemsExperiment) -> Table:
    """Returns the system with the least mean JCT by trace, load, powers and knowledge."""
    rows = []
    for load in experiment.loads:
        for source in ("", *(s.name for s in experiment.sources)):
            where = source or "all traces"
            cells = [_winner(experiment, place, load, source) for place in PLACES]
            rows.append([f"{where}, load {load:g}", *cells])
    heads = ["where", *(f"best of {p}" if p == "all" else p for p in PLACES)]
    title = f"Who wins where: mean JCT over {BASELINE}'s (the slow ones only at load {HEAVY:g})"
    return Table("winners", title, heads, rows, words=len(heads))


def _winner(experiment: SystemsExperiment, place: str, load: float, source: str) -> str:
    able = [
        s.name
        for s in experiment.systems
        if (load == HEAVY or not s.is_slow)
        and (
            place == "all"
            or s.powers_class == place
            or (place == PLACES[-1] and "length" not in s.policy.knows)
        )
    ]
    ratio = {
        name: experiment.system_ratio(name, BASELINE, load=load, source=source).value
        for name in able
    }
    best = min(ratio, key=lambda name: ratio[name])
    return f"{best} {ratio[best]:.2f}"


def conclusions(experiment: SystemsExperiment) -> Table:
    """Returns each claim with its ratio, and in how many settings it survives."""
    rows = []
    for claim, by_variant in experiment.survivals.items():
        ratio = experiment.system_ratio(claim.better, claim.worse)
        counted = Counter(by_variant.values())
        rows.append(
            [
                claim.words,
                claim.said_by,
                f"{ratio.value:.2f}",
                _between(ratio, "{:.2f}"),
                verdict(ratio),
                *(str(counted[word]) for word in (HOLDS, OPEN, REVERSED)),
                _otherwise(by_variant, verdict(ratio)),
            ]
        )
    heads = (
        "claim",
        "said by",
        "ratio",
        "95 %",
        "base",
        HOLDS,
        OPEN,
        REVERSED,
        "otherwise than in the base",
    )
    title = (
        f"Conclusions, and in how many of {len(experiment.variants)} other settings they survive"
    )
    return Table("claims", title, heads, rows, words=2)


def _otherwise(by_variant: Mapping[Variant, str], base: str) -> str:
    """Returns the settings whose verdict is not that of the base, by verdict."""
    found = []
    for word in (HOLDS, OPEN, REVERSED):
        where = [v.words for v, outcome in by_variant.items() if outcome == word != base]
        if where:
            found.append(f"{word}: {', '.join(where)}")
    return "; ".join(found)


def hosts(experiment: SystemsExperiment) -> Table:
    """Returns the rank of each system whose jobs meet on GPUs, in the two readings of a host."""
    readings = (BASE, EXCLUSIVE_HOST)
    ratios = [
        {s.name: experiment.ratio_in_reading(s.name, options) for s in experiment.systems}
        for options in readings
    ]
    ranks = [[name for name, _ in sorted(r.items(), key=lambda p: p[1].value)] for r in ratios]
    crowding = {s.name for s in experiment.systems if s.policy.powers & {"share", "interleave"}}
    rows = [
        [name, *(cell for i in (0, 1) for cell in _placed(name, ranks[i], ratios[i][name]))]
        for name in ranks[0]
        if name in crowding
    ]
    one = ("rank", f"over {BASELINE}", "95 %")
    heads = ["policy", *one, *(f"{head}, one job loads" for head in one)]
    title = "Two readings of a host: it feeds 2.875 jobs a GPU, or one job loads at a time"
    return Table("hosts", title, heads, rows)


def _placed(name: str, ranks: Sequence[str], ratio: Interval) -> list[str]:
    return [str(ranks.index(name) + 1), f"{ratio.value:.2f}", _between(ratio, "{:.2f}")]


def claims(experiment: SystemsExperiment) -> list[Claim]:
    """Returns the claims of the papers as rows with verdicts; what nobody said misses nothing."""
    rows = []
    for claim in PAPERS:
        ratio = experiment.system_ratio(claim.better, claim.worse)
        outcome = verdict(ratio)
        why = {
            HOLDS: "",
            OPEN: "it cannot be told: the interval of the ratio holds 1",
            REVERSED: "here it is the other way round",
        }[outcome]
        part, holds = f"Said by {claim.said_by}", outcome == HOLDS
        rows.append(Claim(part, claim.words, ratio.value, holds=holds, why=why))
    return rows


def changes(experiment: SystemsExperiment) -> Table:
    """Returns how much each setting moves the mean JCT of each system that claims are about."""
    names = list(dict.fromkeys(n for c in CLAIMS for n in (c.better, c.worse)))
    rows = [
        [f"{v.axis}: {v.words}", *(f"{experiment.change(name, v):.2f}" for name in names)]
        for v in experiment.variants
    ]
    title = "Mean JCT when one thing is varied, over the same system's in the base"
    return Table("changes", title, ["setting", *names], rows)


def tables(experiment: SystemsExperiment) -> list[Table]:
    """Returns all tables."""
    return [
        everybody(experiment),
        winners(experiment),
        hosts(experiment),
        conclusions(experiment),
        changes(experiment),
    ]
