"""`dovetail models`: the profiles of the zoo, their provenance, and slowdowns of pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.options import json_option
from dovetail.core.errors import InputError, nearest
from dovetail.physics.sharing.contention import shipped_contention
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.service_demand import on_one_gpu
from dovetail.physics.speed.throughput import iteration_s, throughput_table
from dovetail.physics.zoo.device import devices
from dovetail.physics.zoo.models import Catalogue, shipped_sets
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import (
    ProfileSet,
    field_values,
    load_profiles,
    profile_fields,
)
from dovetail.physics.zoo.provenance import Sourced

SHOWN_GPUS = 64


def _moved_to(command: str) -> str:
    """Returns the advice for a command of earlier versions that fitted profiles."""
    return f"run `python -m tools.zoo {command} --data DIR` in a checkout of Dovetail instead"


class ModelsGroup(click.Group):
    """Refuses `models fit`, a command of earlier versions, and names the new one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that was typed."""
        if args and args[0] == "fit":
            raise click.ClickException(f"'models fit' is no longer a command: {_moved_to('fit')}")
        return super().resolve_command(ctx, args)


@click.group(cls=ModelsGroup, invoke_without_command=True)
@click.option(
    "--profiles",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Add the profile set of a file, as examples/measure_gpu.py writes it.",
)
@json_option
@click.pass_context
def models(context: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """List the models whose speed is known, with the provenance of each field.

    \b
    Example:
      dovetail models
      dovetail models show pollux/bert
      dovetail models pairs
    """
    sets = (*shipped_sets(), *(load_profiles(file) for file in files))
    context.obj = sets
    if context.invoked_subcommand is None:
        _print_list(sets, as_json)


def _print_list(sets: Sequence[ProfileSet], as_json: bool) -> None:
    profiles = [profile for one in sets for profile in one.profiles]
    if as_json:
        click.echo(json.dumps({"models": [_summary(profile) for profile in profiles]}))
        return
    for one in sets:
        click.echo(f"{one.family}: {one.title}")
    click.echo("\nbatch: of the job, or (/) of each GPU; s: an iteration on 1 GPU; x8: speed on 8")
    click.echo("compute, network, memory, curve, stages: m measured, f fitted, d derived,")
    click.echo("a assumed, - unknown\n")
    click.echo(f"{'model':<26}{'GPU':<9}{'batch':>7}  {'max':>3} {'s':>9} {'x8':>5}  c n m c s")
    for profile in profiles:
        click.echo(_list_line(profile))


def _list_line(profile: ModelProfile) -> str:
    batch = profile.batch.value
    rates = throughput_table(profile, 8)
    marks = [profile.compute[0][1], profile.network, profile.memory, profile.curve, profile.stages]
    letters = " ".join(str(mark.provenance)[0] if mark else "-" for mark in marks)
    return (
        f"{profile.full_name:<26}{profile.gpu_type.value:<9}"
        f"{batch.size:>7}{'/' if batch.per_gpu else ' '} {profile.max_gpus.value:>3} "
        f"{iteration_s(profile, gpus=1):>9.4f} {rates[8] / rates[1]:>5.2f}  {letters}"
    )


def _summary(profile: ModelProfile) -> dict[str, object]:
    return {
        "name": profile.full_name,
        "title": profile.title,
        "aliases": list(profile.aliases),
        "gpu_type": profile.gpu_type.value,
        "max_gpus": profile.max_gpus.value,
        "iteration_s": iteration_s(profile, gpus=1),
        "provenance": {
            name: str(entry.provenance) for name, entry in profile_fields(profile).items()
        },
    }


@models.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(sets: Sequence[ProfileSet], name: str, as_json: bool) -> None:
    """Show every field of one model with its provenance and source.

    \b
    Example:
      dovetail models show DeepspeechModel64
    """
    profile = Catalogue(sets).lookup(name)
    fields = profile_fields(profile)
    useful = min(SHOWN_GPUS, profile.max_gpus.value)
    rates = [round(float(rate), 9) for rate in throughput_table(profile, useful)]
    if as_json:
        shown = {key: _sourced(entry) for key, entry in fields.items()}
        head = {"name": profile.full_name, "title": profile.title, "aliases": profile.aliases}
        click.echo(json.dumps({**head, "fields": shown, "throughput_per_s": rates}))
        return
    click.echo(f"{profile.full_name}: {profile.title}")
    click.echo(f"also called: {', '.join(profile.aliases) or '-'}")
    for key, entry in fields.items():
        click.echo(f"\n{key} ({entry.provenance})")
        for part, value in field_values(entry.value).items():
            click.echo(f"  {part}: {_plain(value)}")
        click.echo(f"  source: {entry.source}")
    click.echo("\nthroughput, default batches a second by GPUs (well placed)")
    click.echo("  " + ", ".join(f"{n}: {rate:.4g}" for n, rate in enumerate(rates) if n))


def _sourced(entry: Sourced[object]) -> dict[str, object]:
    values = field_values(entry.value)
    return {**values, "provenance": str(entry.provenance), "source": entry.source}


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_plain(part) for part in value)
    return str(value)


@models.command("devices")
@json_option
def devices_command(as_json: bool) -> None:
    """List the GPU types whose relative speed is known.

    \b
    Example:
      dovetail models devices
    """
    known_devices = devices().values()
    if as_json:
        rows = [
            {
                "name": one.name,
                "aliases": list(one.aliases),
                "speed": _sourced(one.speed),
                "memory_bytes": _sourced(one.memory_bytes),
            }
            for one in known_devices
        ]
        click.echo(json.dumps({"devices": rows}))
        return
    click.echo(f"{'GPU':<12}{'speed (V100 = 1)':>18}{'memory GiB':>12}  provenance of the speed")
    for one in known_devices:
        memory_gib = one.memory_bytes.value / 2**30
        click.echo(
            f"{one.name:<12}{one.speed.value:>18.2f}{memory_gib:>12.0f}  {one.speed.provenance}"
        )


def _refuse_data(context: click.Context, option: click.Parameter, data: str | None) -> None:
    if data is not None:
        raise click.ClickException(f"'models pairs --data' refits no longer: {_moved_to('pairs')}")


@models.command()
@click.option("--data", hidden=True, expose_value=False, callback=_refuse_data)
@shown_option("--family", default="pollux", help="The set to show.")
@json_option
@click.pass_obj
def pairs(sets: Sequence[ProfileSet], family: str, as_json: bool) -> None:
    """Show how much two models slow each other on one GPU: iteration time shared over alone.

    \b
    Example:
      dovetail models pairs
      dovetail models pairs --family muri
    """
    by_family = {one.family: one for one in sets}
    if family not in by_family:
        raise InputError(f"family '{family}'", "is unknown", nearest(family, by_family))
    _print_ratios(by_family[family].profiles, MeasuredInterference(sets), as_json)


def _print_ratios(
    profiles: Sequence[ModelProfile], law: MeasuredInterference, as_json: bool
) -> None:
    batch = {one.name: min(one.batch.value.size, one.batch.value.max_per_gpu) for one in profiles}
    loads = {one.name: on_one_gpu(one, batch[one.name]) for one in profiles}
    ratio = {
        name: {other: law.ratio(load, loads[other]) for other in loads}
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
            f"{ratio[one.name][other.name]:.2f}{'*' if law.is_measured(one, other) else ' '}"
            for other in profiles
        ]
        size = batch[one.name]
        click.echo(f"{one.name:<{wide}}{size:>6}{loads[one.name].load:>7.2f}" + _cells(marks))


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"{text:>8}" for text in texts)
