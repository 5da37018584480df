"""Refits the model zoo from public measurements: `python -m tools.zoo fit --data ../shared`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from dovetail.cli.main import run_command
from dovetail.core.errors import InputError
from dovetail.physics.pipelines.pipeline import FAMILY
from dovetail.physics.zoo.profile import FitError
from dovetail.physics.zoo.profile_file import ProfileSet, dump_profiles, field_values
from tools.zoo.accuracy import errors_by_region
from tools.zoo.fit import FITS, refit
from tools.zoo.networks import dump_networks
from tools.zoo.pairs import HeldOut, PairReport, dump_contention, fit_contention, pair_report

Errors = Mapping[str, FitError | None]


@click.group()
def zoo() -> None:
    """Refit the model zoo from public measurements.

    What `fit` and `pairs` write is shipped in src/dovetail/physics/zoo/profiles.
    """


def _data_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option(
        "--data",
        required=True,
        type=click.Path(path_type=Path),
        callback=_existing,
        help="The folder with the public data: it holds data/ and traces/.",
    )(command)


def _existing(context: click.Context, option: click.Parameter, data: Path) -> Path:
    if not data.is_dir():
        raise InputError("--data", f"{data} is not a folder", "give the one with data/ and traces/")
    return data


def _json_option(command: click.decorators.FC) -> click.decorators.FC:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


@zoo.command()
@_data_option
@click.option(
    "--family", "families", multiple=True, help="Only these sets (default: all). Repeatable."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write each refitted set to this folder as FAMILY.toml.",
)
@_json_option
def fit(data: Path, families: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Refit the zoo from the public data and report the errors on rows it has not seen.

    \b
    Example:
      python -m tools.zoo fit --data ../shared
      python -m tools.zoo fit --data ../shared --family pollux -o refitted
    """
    refitted = [refit(family, data) for family in _shown_progress(families or tuple(FITS))]
    if output:
        for one in refitted:
            _write(output, f"{one.family}.toml", dump_profiles(one))
        if any(one.family == FAMILY for one in refitted):
            _write(output, "networks.toml", dump_networks())
    regions = {
        profile.full_name: errors_by_region(profile, data)
        for one in refitted
        if one.family == "pollux"
        for profile in one.profiles
    }
    _print_errors(refitted, regions, as_json)


def _shown_progress(families: Sequence[str]) -> Iterable[str]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(families, "fitting", console=console, disable=not console.is_terminal)


def _write(folder: Path, name: str, text: str) -> None:
    """Writes a file whole: a reader sees the old one or the new one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)
    except OSError as trouble:
        raise InputError("--output", f"{folder} cannot be written: {trouble.strerror}") from trouble


def _print_errors(sets: Sequence[ProfileSet], regions: Mapping[str, Errors], as_json: bool) -> None:
    errors = {
        profile.full_name: profile.fit_error.value if profile.fit_error else None
        for one in sets
        for profile in one.profiles
    }
    if as_json:
        by_region = {name: _errors(of_model) for name, of_model in regions.items()}
        click.echo(json.dumps({"held_out": _errors(errors), "by_region": by_region}))
        return
    click.echo("relative error of iteration times on measurements held out of the fit")
    _print_table("model", errors)
    if regions:
        click.echo("\nby where the job lies (one GPU is always fitted, so not held out)")
    for name, of_model in regions.items():
        _print_table(name, of_model)


def _errors(errors: Errors) -> dict[str, object]:
    return {name: None if error is None else field_values(error) for name, error in errors.items()}


def _print_table(title: str, rows: Errors) -> None:
    click.echo(f"{title:<28}{'rows':>6}{'mean':>9}{'p90':>9}{'worst':>9}")
    for name, error in rows.items():
        if error is None:
            click.echo(f"  {name:<26}{'':>6}{'none: too few points, measured at each':>40}")
        else:
            numbers = "".join(f"{100 * x:>8.1f}%" for x in (error.mean, error.p90, error.worst))
            click.echo(f"  {name:<26}{error.rows:>6}{numbers}")


@zoo.command()
@_data_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the refit to this folder."
)
@_json_option
def pairs(data: Path, output: Path | None, as_json: bool) -> None:
    """Refit the law of contention, and report its errors on pairs it has not seen.

    \b
    Example:
      python -m tools.zoo pairs --data ../shared
    """
    report = pair_report(data)
    if output is not None:
        _write(output, "interference.toml", dump_contention(fit_contention(data)))
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
    def by_name(rows: Sequence[HeldOut]) -> dict[str, object]:
        return {
            one.what: {"law": asdict(one.law), "constant": asdict(one.constant)} for one in rows
        }

    return {
        "law": asdict(report.law),
        "outside_share": report.outside_share,
        "held_out": by_name(report.held_out),
        "other_types": by_name(report.other_types),
        "rank_correlation": report.rank,
        "batches": asdict(report.batches),
    }


@zoo.command()
@_data_option
def benchmark(data: Path) -> None:
    """Print how long fits and calls take, and the errors against a table of others.

    \b
    Example:
      python -m tools.zoo benchmark --data ../shared
    """
    from tools.zoo.benchmark import report

    report(data)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of a command line."""
    return run_command(zoo, list(arguments), "python -m tools.zoo")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
