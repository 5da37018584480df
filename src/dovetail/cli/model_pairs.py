"""`dovetail models pairs`: how much models slow each other on one GPU, and how well we know it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from tools.zoo.pairs import HeldOut, PairReport, fit_contention, pair_report

from dovetail.core.errors import InputError, nearest
from dovetail.physics.sharing.contention import dump_contention, load, shipped_contention
from dovetail.physics.sharing.pair_law import MeasuredInterference
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet


@click.command()
@click.option("--family", default="pollux", show_default=True, help="The set to show.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Refit from the public data in this folder instead, and report the errors.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the refit to this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def pairs(
    sets: Sequence[ProfileSet], family: str, data: Path | None, output: Path | None, as_json: bool
) -> None:
    """Show how much two models slow each other on one GPU: iteration time shared over alone.

    \b
    Example:
      dovetail models pairs
      dovetail models pairs --data ../shared
    """
    if data is not None:
        _refit(data, output, as_json)
        return
    if output is not None:
        raise InputError("--output", "there is nothing to write without --data")
    found = {one.family: one for one in sets}
    if family not in found:
        raise InputError(f"family '{family}'", "is unknown", nearest(family, found))
    _print_ratios(found[family].profiles, MeasuredInterference(sets), as_json)


def _micro_batch(profile: ModelProfile) -> int:
    batch = profile.batch.value
    return min(batch.size, batch.max_per_gpu)


def _print_ratios(
    profiles: Sequence[ModelProfile], known: MeasuredInterference, as_json: bool
) -> None:
    batch = {one.name: _micro_batch(one) for one in profiles}
    ratio = {
        one.name: {
            other.name: known.ratio(one, batch[one.name], other, batch[other.name])
            for other in profiles
        }
        for one in profiles
    }
    if as_json:
        click.echo(json.dumps({"micro_batch": batch, "ratio": ratio}))
        return
    median = shipped_contention().median_ratio
    click.echo("iteration time shared over alone, of the row's model beside the column's")
    click.echo("*: measured at some batches; else by the law of contention fitted to such pairs")
    click.echo(f"a job without a model: {median:.2f}\n")
    wide = max(12, *(len(one.name) for one in profiles))
    click.echo(
        f"{'model':<{wide}}{'batch':>6}{'load':>7}" + _cells(one.name[:7] for one in profiles)
    )
    for one in profiles:
        marks = [
            f"{ratio[one.name][other.name]:.2f}{'*' if known.is_measured(one, other) else ' '}"
            for other in profiles
        ]
        size = batch[one.name]
        click.echo(f"{one.name:<{wide}}{size:>6}{load(one, size):>7.2f}" + _cells(marks))


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"{text:>8}" for text in texts)


def _refit(data: Path, output: Path | None, as_json: bool) -> None:
    if not data.is_dir():
        raise InputError("--data", f"{data} is not a folder", "give the one with data/ and traces/")
    report = pair_report(data)
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
            text = dump_contention(fit_contention(data))
            (output / "interference.toml").write_text(text, encoding="utf-8")
        except OSError as trouble:
            raise InputError("--output", f"{output} cannot be written: {trouble}") from trouble
    if as_json:
        click.echo(json.dumps(_as_json(report)))
        return
    law = ", ".join(f"{key} {value:.3g}" for key, value in asdict(report.law).items())
    click.echo(f"law: {law}; share outside the GPU {report.outside_share:.2f}")
    click.echo("\nrelative error of ratios not fitted; constant: the mean ratio of the fitted rows")
    click.echo(f"{'held out':<34}{'rows':>6}{'mean':>7}{'p90':>7}{'worst':>7}{'constant':>10}")
    for one in report.held_out:
        click.echo(_line(one))
    click.echo("\nother GPU types, by the same law")
    for one in report.other_types:
        click.echo(f"{_line(one)}   rank correlation {report.rank[one.what]:.2f}")
    left_out = report.batches
    click.echo(f"\na batch left out of a measured pair: mean {_percent(left_out.mean)}, ", nl=False)
    click.echo(f"worst {_percent(left_out.worst)} of {left_out.rows} rows")


def _line(one: HeldOut) -> str:
    errors = "".join(_percent(x) for x in (one.law.mean, one.law.p90, one.law.worst))
    return f"{one.what:<34}{one.law.rows:>6}{errors}{_percent(one.constant.mean):>10}"


def _percent(share: float) -> str:
    return f"{100 * share:>6.1f}%"


def _as_json(report: PairReport) -> dict[str, object]:
    def shown(rows: Sequence[HeldOut]) -> dict[str, object]:
        return {
            one.what: {"law": asdict(one.law), "constant": asdict(one.constant)} for one in rows
        }

    return {
        "law": asdict(report.law),
        "outside_share": report.outside_share,
        "held_out": shown(report.held_out),
        "other_types": shown(report.other_types),
        "rank_correlation": report.rank,
        "batches": asdict(report.batches),
    }
