"""Sentences on how far the replay of the site's scheduler is from the record."""

from __future__ import annotations

from dovetail.record.replay_error import APART_S, WHY, Deviation, ReplayError
from dovetail.report.words import count, duration, percent

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
        f"{_error(numbers['avg_wait_s'])}; {percent(error.near)} of starts within "
        f"{duration(APART_S)}"
    )
    if error.start_correlation is not None:
        text += f"; rank correlation of starts {error.start_correlation:.3f}"
    if error.wait_correlation is not None:
        text += f", of waits {error.wait_correlation:.2f}"
    return text + f" ({count(error.jobs)} jobs)."


def departure_lines(error: ReplayError, most: int = DEPARTURES_SHOWN) -> list[str]:
    """Returns where the replay and the log first part, and how many starts differ for what."""
    lines = []
    for departure in error.departures[:most]:
        later_s = departure.replayed_start_s - departure.recorded_start_s
        lines.append(
            f"They first differ {duration(departure.t_s - error.first_s)} after the first "
            f"submission: job {departure.job_id} "
            f"({departure.gpus:g} GPU{'s' * (departure.gpus > 1)}) starts {duration(abs(later_s))} "
            f"{'later' if later_s > 0 else 'earlier'} in the replay: {WHY[departure.why]}."
        )
    if error.whys:
        parts = ", ".join(f"{why} {count(number)}" for why, number in error.whys)
        lines.append(f"Starts that differ, by reason: {parts}.")
    return lines


def _error(deviation: Deviation) -> str:
    error = deviation.error
    if error is None:
        return f"{duration(deviation.replayed_s)} instead of {duration(deviation.recorded_s)}"
    return f"{error * 100:+.3g} %"
