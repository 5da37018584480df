"""Formats numbers as text: durations, factors, and the sentence that summarises a result."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

import polars as pl

from dovetail.core.policy import parse_policy, registered, spell
from dovetail.record.result import AGAINST_TODAY, RECORDED, Comparison, Contrast, RunResult

MISSING = "–"
ABOUT_THE_SAME = 0.02
"""Two means closer than this share of each other are called about the same."""


def duration(seconds: float | None) -> str:
    """Returns a duration with at most three digits: `3.2 h`, `41 s`, `1.5 d`."""
    if seconds is None or seconds != seconds:
        return MISSING
    if seconds in (float("inf"), float("-inf")):
        return "never"
    size = abs(seconds)
    if size == 0:
        return "0 s"
    if size < 1:
        return f"{seconds * 1000:.3g} ms"
    for (unit, unit_s), (_, above_s) in pairwise(UNITS):
        # 59.97 min rounds to "60 min": say "1 h" as soon as the rounding would reach the next.
        if size < above_s * 0.9995:
            return f"{three_digits(seconds / unit_s)} {unit}"
    return f"{three_digits(seconds / 86400)} d"


UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 2 * 86400.0))
"""Hours go on to two days: `30 h` is easier to read than `1.25 d`."""


def three_digits(value: float) -> str:
    """Returns a number with three significant digits, thousands grouped: `1.25`, `12,300`."""
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.3f}"


def factor(value: float | None) -> str:
    """Returns a ratio as `1.30x`."""
    if value is None or value != value:
        return MISSING
    if 0 < value < 0.095:
        return f"{value:.2g}x" if value >= 1e-4 else "<0.0001x"
    return f"{value:.2f}x" if value < 9.995 else f"{three_digits(value)}x"


def percent(share: float | None) -> str:
    """Returns a share as `71 %`."""
    if share is None or share != share:
        return MISSING
    if -0.0005 < share < 0:
        return "0 %"
    return f"{share * 100:.1f} %" if 0 < abs(share) < 0.0995 else f"{share * 100:.0f} %"


def count(value: float | None) -> str:
    """Returns a count with its thousands grouped; one decimal where it is a mean."""
    if value is None or value != value:
        return MISSING
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def shortened(name: str, width: int) -> str:
    """Returns a name in at most `width` characters, its end cut where it is longer."""
    flat = " ".join(name.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Returns for each policy a name short enough for a legend, no two alike.

    `tiresias:thresholds=3250/7200` is `tiresias` while it is the only one, else `tiresias #2`;
    the class of `my/file.py:Mine` is `Mine`. A row that is told true lengths keeps `, known`.
    """
    full = list(dict.fromkeys(names))
    bases = [_short_base(name) for name in full]
    seen: Counter[str] = Counter()
    short: dict[str, str] = {}
    for name, base in zip(full, bases, strict=True):
        seen[base] += 1
        alone = bases.count(base) == 1
        whole = len(name) <= SHORT_NAME_WIDTH and name == " ".join(name.split())
        short[name] = base if alone else name if whole else f"{base} #{seen[base]}"
        policy = name.removesuffix(KNOWN)
        if name != policy and policy in short and not (alone or whole):
            # The number is that of the policy, and stands with its name.
            short[name] = short[policy] + KNOWN
    return short


SPELLED_MAX = 100
"""A policy whose text is longer is told by the parameters that differ from the defaults."""


def spelled_words(short: str, name: str) -> str:
    """Returns what the short name of a policy stands for."""
    base = name.partition(":")[0]
    if len(name) <= SPELLED_MAX or base not in registered():
        return f"{short} is {name}"
    where = f"(dovetail policies {base})"
    terse = _without_defaults(name)
    if terse == base:
        return f"{short} has its default parameters {where}"
    return f"{short} is {terse}, otherwise with its defaults {where}"


def _without_defaults(name: str) -> str:
    """Returns the text of a policy without parameters that have their defaults."""
    base, _, chosen = name.partition(":")
    if base not in registered():
        return name
    default = spell(parse_policy(base)).partition(":")[2].split(",")
    differ: list[str] = []
    for each in chosen.split(","):
        key, equals, value = each.partition("=")
        if each not in default:
            inner = _without_defaults(value.replace(";", ",")).replace(",", ";")
            differ.append(f"{key}{equals}{inner}")
    return ":".join([base, *filter(None, [",".join(differ)])])


SHORT_NAME_WIDTH = 16
KNOWN = ", known"
"""What the name of a row ends in that is told true lengths beside one that is not."""


def _short_base(name: str) -> str:
    if not name.endswith(KNOWN):
        return shortened(_base(name), SHORT_NAME_WIDTH)
    base = _base(name.removesuffix(KNOWN))
    return shortened(base, SHORT_NAME_WIDTH - len(KNOWN)) + KNOWN


def _base(name: str) -> str:
    head, _, tail = name.partition(":")
    return tail.partition(":")[0] if head.endswith(".py") and tail else head


def size_words(size_class: str) -> str:
    """Returns `1 GPU`, `2-4 GPUs`."""
    return "1 GPU" if size_class == "1" else f"{size_class} GPUs"


def size_order(size_class: str) -> tuple[float, str]:
    """Orders size classes by their least number: '0', '<1', '1', '2-4', '5-8', '>8' and '9+'."""
    number = re.search(r"\d+(?:\.\d+)?", size_class)
    above = {">": 0.5, "<": -0.5}.get(size_class.lstrip()[:1], 0.0)
    return (float(number.group()) + above if number else float("inf"), size_class)


def run_sentence(result: RunResult) -> str:
    """Returns one or two sentences on the result of a run."""
    (name,) = short_names([result.policy]).values()
    finished, jobs = result.number("finished"), result.number("jobs")
    mean_s, wait_s = result.number("avg_jct_s"), result.number("avg_wait_s")
    if not jobs or mean_s is None:
        return f"{name}: no job finished."
    counted = f"all {count(jobs)}" if finished == jobs else f"{count(finished)} of {count(jobs)}"
    text = f"{name} finishes {counted} jobs; the mean job takes {duration(mean_s)}"
    if wait_s is not None:
        text += f", of which {duration(wait_s)} waiting"
    x_bound, busy = result.number("x_bound"), result.number("gpu_utilization")
    if x_bound is not None:
        text += f"; that is {factor(x_bound)} the shortest any schedule could reach"
    if busy is not None:
        text += f". GPUs are held {percent(busy)} of the time"
    return text + "."


def comparison_sentence(comparison: Comparison) -> str:
    """Returns what a reader can act on: the best policy, its advantage, and who pays for it.

    Where the rows tell what could be deployed today, that comes first, and then what preemption,
    known lengths, elasticity and sharing would add.
    """
    if comparison.contrasts:
        return _answer(comparison)
    rows = comparison.policies.filter(pl.col("avg_jct_s").is_finite()).to_dicts()
    if not rows:
        return "No policy finished a job."
    best, base = rows[0], comparison.baseline
    short = short_names([*comparison.results, *comparison.ranked["policy"]])
    if len(rows) == 1:
        only = comparison.results.get(str(best["policy"]))
        return run_sentence(only) if only else f"{best['policy']} is alone: nothing to compare."
    if best["policy"] == base:
        rival = rows[1]
        gain = _sooner(short[base], short[rival["policy"]], rival["ratio_to_baseline"], None, None)
    else:
        ratio, low, high = (
            1 / best[k] if best[k] else None
            for k in ("ratio_to_baseline", "ratio_high", "ratio_low")
        )
        gain = _sooner(short[best["policy"]], short[base], ratio, low, high)
    parts = [gain]
    if best["x_bound"] is not None:
        parts.append(f"{factor(best['x_bound'])} the bound no schedule of its kind can beat")
    if best["policy"] != base and (
        fate := _fate_of_biggest(comparison, str(best["policy"]), short[base])
    ):
        parts.append(fate)
    return "; ".join(parts) + "."


def _answer(comparison: Comparison) -> str:
    """Returns the sentences on what could be deployed today, and on what more would add."""
    asked = [name for c in comparison.contrasts for name in (c.policy, c.against)]
    short = short_names([*comparison.results, *comparison.ranked["policy"], *asked])
    first = comparison.contrasts[0]
    is_baseline = first.asks not in AGAINST_TODAY
    best = comparison.deployable
    is_replay = first.against == RECORDED and best == comparison.site
    text = f"Of what could be deployed today nothing beats {short[best]}"
    if is_replay:
        # Against the record this row is no gain: it is the error of the replay.
        text += f", which stands for your scheduler; replayed, {_gain(first, short)}"
    elif not is_baseline:
        text = f"{_verdict(comparison, first, short)}: {_gain(first, short)}"
    site = comparison.contrast("over site")
    if site is not None and site is not first:
        text += f", {_gain(site, short, 'the replay of ', brief=True)}"
    if not is_baseline and not is_replay:
        # Like with like: the replay of the site's scheduler errs as the policy's own run does.
        rival = first.against if site is None else site.against
        text += f"; {_who_pays(comparison, best, rival, short)}"
    return f"{text}{_bound_of(comparison, best)}.{_additions(comparison, short)}"


def _verdict(comparison: Comparison, first: Contrast, short: dict[str, str]) -> str:
    """Returns which policy is best, or that none is clearly better than what there is.

    Where there is a record, the replay of the site's scheduler decides: it errs as the others do.
    """
    decides = comparison.contrast("over site") or first
    if not decides.is_open:
        return f"Of what could be deployed today {short[first.policy]} is best"
    base = short.get(decides.against, decides.against)
    what = base if comparison.replay_error is None else f"what you run ({base})"
    beaten = f"Nothing that could be deployed today clearly beats {what}"
    return f"{beaten}; {short[first.policy]} has the shortest mean"


def _bound_of(comparison: Comparison, name: str) -> str:
    found = comparison.ranked.filter(pl.col("policy") == name)["x_bound"].drop_nulls()
    return f"; {factor(found[0])} the bound no schedule of its kind can beat" if len(found) else ""


def _additions(comparison: Comparison, short: dict[str, str]) -> str:
    """Returns the sentence on what more would add; empty if no row tells."""
    more = [c for c in comparison.contrasts if c.asks not in AGAINST_TODAY]
    return f" {_capital('; '.join(_addition(c, short) for c in more))}." if more else ""


def _gain(contrast: Contrast, short: dict[str, str], of: str = "", *, brief: bool = False) -> str:
    """Returns how much sooner the mean job ends, with the interval."""
    to = "recorded" if contrast.against == RECORDED else of + short[contrast.against]
    subject = "" if brief else "the mean job ends "
    if not contrast.ratio > 0:
        return f"how it compares with {to} is not known"
    if contrast.is_open:
        subject = "" if brief else "the mean job shows "
        words = f"no clear difference from {'the log' if to == 'recorded' else to}"
    elif contrast.ratio < 1:
        words = f"{factor(1 / contrast.ratio)} sooner than {to}"
    else:
        words = f"{factor(contrast.ratio)} later than {to}"
    return subject + words + _range(contrast, "" if brief else "95 % interval ")


def _range(contrast: Contrast, what: str) -> str:
    """Returns the interval of how much sooner, or later, in brackets; empty without one."""
    low, high = contrast.low, contrast.high
    if low is None or high is None or not low > 0:
        return " (no interval)"
    is_later = contrast.ratio > 1 and not contrast.is_open
    ends = (low, high) if is_later else (1 / high, 1 / low)
    return f" ({what}{factor(ends[0])} to {factor(ends[1])})"


def _addition(contrast: Contrast, short: dict[str, str]) -> str:
    """Returns what a power or knowledge would add to what could be deployed today."""
    name = short[contrast.policy].removesuffix(KNOWN)
    what = f"{contrast.asks} ({name})"
    if contrast.is_open:
        return f"{what} would make no clear difference{_range(contrast, '')}"
    if contrast.ratio < 1:
        return f"{what} would make it {factor(1 / contrast.ratio)} sooner{_range(contrast, '')}"
    return f"{what} would make it {factor(contrast.ratio)} later{_range(contrast, '')}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


LENGTH_WORDS = {
    "known": "true lengths",
    "predicted": "predicted lengths",
    "limit": "time limits",
    "noisy": "blurred lengths",
}


def known_words(row: Mapping[str, object]) -> str:
    """Returns what a row of the table is told of a job."""
    source = str(row["forecast"] or "").partition(",")[0].partition(":")[0]
    told = LENGTH_WORDS.get(source, "length")
    knows = str(row["knows"] or "nothing").split(", ")
    return ", ".join(told if what == "length" else what for what in knows)


def power_words(row: Mapping[str, object]) -> str:
    """Returns what a row of the table may do to running jobs."""
    powers = str(row["powers"] or "none")
    return "start only" if powers == "none" else powers


PAYS = (("size_class", "of {} GPUs"), ("account", "of account {}"))
PAYERS_MAX = 2
LONGER_S_MIN = 60.0
"""Waits that grow by less are nobody's concern."""


def _who_pays(comparison: Comparison, policy: str, against: str, short: dict[str, str]) -> str:
    """Returns the sizes and accounts whose mean wait is longer under a policy than in a row.

    Against a replay they say what the log has, where the replay is far from it.
    """
    losers: list[str] = []
    for column, words in PAYS:
        means = _paired_waits(comparison, policy, against, column)
        logged_s = {g: s for g, _, s, _ in _paired_waits(comparison, against, RECORDED, column)}
        longer = {
            group: (after_s, before_s, jobs)
            for group, after_s, before_s, jobs in means
            if after_s - before_s > max(LONGER_S_MIN, ABOUT_THE_SAME * before_s)
        }
        order = sorted(longer, key=lambda g: (longer[g][1] - longer[g][0], g))
        for group in order[:PAYERS_MAX]:
            after_s, before_s, jobs = longer[group]
            who = words.format(group)
            losers.append(
                f"{_counted(jobs)} {who} {_longer(after_s, before_s, jobs)}"
                + _in_the_log(logged_s.get(group), before_s)
            )
    row = f"{'' if comparison.replay_error is None else 'the replay of '}{short[against]}"
    return f"compared with {row}, {', '.join(losers) or 'no size of job waits longer'}"


def _in_the_log(recorded_s: float | None, replayed_s: float) -> str:
    """Returns what the log has, in brackets, where the replay is far from it."""
    if recorded_s is None or not is_far(recorded_s, replayed_s):
        return ""
    return f" (the log has {duration(recorded_s)}: the replay is far off there)"


FAR = 1.25
"""Two waits whose ratio is above this, and that differ by `LONGER_S_MIN`, are far apart."""


def is_far(one_s: float, other_s: float) -> bool:
    """True if two waits are far apart."""
    less_s, more_s = sorted((one_s, other_s))
    return more_s - less_s > LONGER_S_MIN and more_s > FAR * less_s


def _counted(jobs: int) -> str:
    return f"{count(jobs)} job{'s' * (jobs != 1)}"


def _paired_waits(
    comparison: Comparison, policy: str, against: str, by: str
) -> list[tuple[str, float, float, int]]:
    """Returns by group the mean waits of the jobs that ended in both rows, and their number."""
    ours, theirs = (comparison.results.get(name) for name in (policy, against))
    if ours is None or theirs is None:
        return []
    columns = ["job_id", "wait_s", "jct_s"]
    known = theirs.jobs.select(columns).drop_nulls()
    both = ours.jobs.drop_nulls([*columns, by]).filter(pl.col(by) != "").join(known, "job_id")
    means = both.group_by(by).agg(
        pl.col("wait_s").mean(), pl.col("wait_s_right").mean(), pl.len().alias("jobs")
    )
    return list(means.sort(by).iter_rows())


def _longer(after_s: float, before_s: float, jobs: int) -> str:
    wait = "waits" if jobs == 1 else "wait"
    return f"{wait} {duration(after_s)} instead of {duration(before_s)}"


def bounds_text(comparison: Comparison) -> str:
    """Returns the bound for each set of powers of the policies, and how loose it is if measured."""
    every, loose = (comparison.bound.get(key) for key in ("all", "looseness"))
    words = loose if isinstance(loose, dict) else {}
    if not isinstance(every, dict) or len(every) < 2:
        known = [str(comparison.bound.get("kind") or ""), *words.values()]
        inside = "; ".join(text for text in known if text)
        return duration(comparison.bound_s) + (f" ({inside})" if inside else "")
    texts = []
    for powers, bounds in every.items():
        inside = "; ".join(text for text in (powers, words.get(powers)) if text)
        texts.append(f"{duration(max(bounds.values()))} ({inside})")
    return ", ".join(texts)


def _sooner(
    winner: str, loser: str, ratio: float | None, low: float | None, high: float | None
) -> str:
    if ratio is None:
        return f"{winner} has the shortest mean"
    if abs(ratio - 1) < ABOUT_THE_SAME:
        return f"{winner} and {loser} finish the mean job at about the same time"
    text = f"{winner} finishes the mean job {factor(ratio)} sooner than {loser}"
    if low is None or high is None:
        return text
    text += f" (95 % interval {factor(low)} to {factor(high)})"
    return f"Nothing clearly beats {loser}: {text}" if low <= 1 <= high else text


def _fate_of_biggest(comparison: Comparison, policy: str, base: str) -> str:
    """Returns what the best policy does to the time the biggest jobs spend without a GPU.

    The time to the first start would favour a policy that starts a job and soon stops it again.
    """
    means = _paired_waits(comparison, policy, comparison.baseline, "size_class")
    if len(means) < 2:
        return ""
    biggest, after_s, before_s, number = max(means, key=lambda row: size_order(row[0]))
    jobs = f"the biggest jobs ({biggest} GPUs, {_counted(number)})"
    if max(before_s, after_s) < 1:
        return f"{jobs} hardly wait under either"
    if min(before_s, after_s) < 1:
        return f"{jobs} wait {duration(after_s)} instead of {duration(before_s)} under {base}"
    change = after_s / before_s
    if abs(change - 1) < ABOUT_THE_SAME:
        return f"{jobs} wait as long as under {base}"
    longer = change > 1
    return f"{jobs} wait {factor(change if longer else 1 / change)} " + (
        f"longer than under {base}" if longer else f"less than under {base}"
    )
