"""Sentences on how far the replay of the site's scheduler is from the record."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dovetail.record.replay_error import (
    APART_S,
    Departure,
    Deviation,
    GroupDeviation,
    ReplayError,
)
from dovetail.record.result import Comparison
from dovetail.report.words import count, duration, factor, is_far, percent, short_names, size_words

DEPARTURES_SHOWN = 1
"""How many departures the terminal names; the report names all that were kept."""


def replay_sentence(error: ReplayError, name: str) -> str:
    """Returns the errors of the replay in one or two sentences."""
    numbers = {d.number: d for d in error.numbers}
    jct = ", ".join(
        f"{words} {_error(numbers[key])}"
        for words, key in (
            ("mean", "avg_jct_s"),
            ("median", "median_jct_s"),
            ("99 %", "p99_jct_s"),
        )
    )
    text = (
        f"The replay of {name} against the log: JCT {jct}; mean wait "
        f"{_error(numbers['avg_wait_s'])}{_worst(error)}; {percent(error.near)} of starts within "
        f"{duration(APART_S)}"
    )
    if error.start_correlation is not None:
        text += f"; rank correlation of starts {error.start_correlation:.3f}"
    if error.wait_correlation is not None:
        text += f", of waits {error.wait_correlation:.2f}"
    return text + f" ({count(error.jobs)} jobs)."


WORST_SHOWN = 2
"""How many sizes, and queues, the sentence names whose waits the replay misses most."""


def _worst(error: ReplayError) -> str:
    """Returns the sizes and queues whose mean wait the replay misses by far, which a mean hides."""
    groups = [
        *(("size", group) for group in _farthest(error.by_size)),
        *(("queue", group) for group in _farthest(error.by_queue)),
    ]
    parts = [
        f"{_who(what, group.group)} {duration(group.wait.replayed_s)} instead of "
        f"{duration(group.wait.recorded_s)}{_times(group.wait)}"
        for what, group in groups
    ]
    return f", but {' and '.join(parts)}" if parts else ""


def _who(what: str, group: str) -> str:
    if what == "queue":
        return f"in queue {group}"
    return f"with {size_words(group)}"


def far_sizes(comparison: Comparison) -> str:
    """Returns for which sizes the baseline, as the replay of the log, misses the waits by far."""
    error = comparison.replay_error
    if error is None or comparison.baseline != comparison.site:
        return ""
    far = [g for g in error.by_size if is_far(g.wait.recorded_s, g.wait.replayed_s)]
    parts = [
        f"for jobs {_who('size', g.group)}{_times(g.wait)}, {duration(g.wait.replayed_s)} instead "
        f"of {duration(g.wait.recorded_s)}"
        for g in far
    ]
    if not parts:
        return ""
    return (
        f"The replay of {_short(comparison)} waits unlike the log: {'; '.join(parts)}. "
        "What these jobs gain or lose may be the replay's error."
    )


def _short(comparison: Comparison) -> str:
    return short_names(comparison.results).get(comparison.baseline, comparison.baseline)


def _times(wait: Deviation) -> str:
    return f" ({factor(wait.replayed_s / wait.recorded_s)})" if wait.recorded_s else ""


def _farthest(groups: Sequence[GroupDeviation]) -> list[GroupDeviation]:
    far = [g for g in groups if is_far(g.wait.recorded_s, g.wait.replayed_s)]
    return sorted(far, key=lambda g: -_apart(g.wait))[:WORST_SHOWN]


def _apart(wait: Deviation) -> float:
    less_s, more_s = sorted((wait.recorded_s, wait.replayed_s))
    return more_s / less_s if less_s else inf


def departure_lines(error: ReplayError, most: int = DEPARTURES_SHOWN) -> list[str]:
    """Returns where the replay and the log first part, and how many starts differ for what."""
    lines = []
    for departure in error.departures[:most]:
        lines.append(
            f"They first differ {duration(departure.t_s - error.first_s)} after the first "
            f"submission: job {departure.job_id} "
            f"({departure.gpus:g} GPU{'s' * (departure.gpus > 1)}) starts "
            f"{later_words(departure)} in the replay: {departure.because}."
        )
    if error.whys:
        parts = ", ".join(f"{why} {count(number)}" for why, number in error.whys)
        lines.append(f"Starts that differ, by reason: {parts}.")
    return lines


def later_words(departure: Departure) -> str:
    """Returns how much later or earlier the replay starts a job."""
    later_s = departure.replayed_start_s - departure.recorded_start_s
    return f"{duration(abs(later_s))} {'later' if later_s > 0 else 'earlier'}"


def _error(deviation: Deviation) -> str:
    error = deviation.error
    if error is None:
        return f"{duration(deviation.replayed_s)} instead of {duration(deviation.recorded_s)}"
    return f"{error * 100:+.3g} %"
