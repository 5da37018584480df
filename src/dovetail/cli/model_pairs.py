"""`dovetail models pairs`: how much models slow each other on one GPU, and how well we know it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import click

from dovetail.core.errors import InputError, nearest
from dovetail.physics.sharing.contention import load, shipped_contention
from dovetail.physics.sharing.pair_law import GpuLoad, MeasuredInterference
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet


def moved_to(command: str) -> str:
    """Returns what to do instead of refitting here."""
    return f"run `python -m tools.zoo {command} --data DIR` in a checkout of Dovetail instead"


def _refuse_data(context: click.Context, option: click.Parameter, data: str | None) -> None:
    if data is not None:
        raise click.ClickException(f"'models pairs --data' refits no longer: {moved_to('pairs')}")


@click.command()
@click.option("--data", hidden=True, expose_value=False, callback=_refuse_data)
@click.option("--family", default="pollux", show_default=True, help="The set to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def pairs(sets: Sequence[ProfileSet], family: str, as_json: bool) -> None:
    """Show how much two models slow each other on one GPU: iteration time shared over alone.

    \b
    Example:
      dovetail models pairs
      dovetail models pairs --family muri
    """
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
    loads = {one.name: GpuLoad(one, batch[one.name]) for one in profiles}
    ratio = {
        name: {other: known.ratio(load, loads[other]) for other in loads}
        for name, load in loads.items()
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
