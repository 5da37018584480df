"""What the `trace` commands share: opening any log, writing traces, telling what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.core.trace import Trace

Decorated = TypeVar("Decorated", bound=Callable[..., object])
FILE = click.Path(path_type=Path)
_ZOO_FAMILIES = {"afs": "afs", "afs-sim": "afs", "pollux": "pollux"}


def json_option(command: Decorated) -> Decorated:
    """Adds `--json`, which every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def out_option(command: Decorated) -> Decorated:
    """Adds `-o`, the file to write."""
    return click.option(
        "-o", "--out", type=FILE, required=True, help="File to write: .csv, .csv.gz or .parquet."
    )(command)


def step_times_from_zoo(format_name: str) -> Callable[[str, int], float | None] | None:
    """Returns the zoo's step times for a format whose models it knows."""
    if format_name not in _ZOO_FAMILIES:
        return None
    from dovetail.physics.zoo.models import seconds_per_iteration

    return partial(seconds_per_iteration, family=_ZOO_FAMILIES[format_name])


def training_from_zoo(format_name: str) -> Callable[[str, int, int], tuple[float, float] | None]:
    """Returns what a whole training takes, by the zoo's models of a format's own family."""
    from dovetail.physics.batches.goodput import training

    return partial(training, family=_ZOO_FAMILIES.get(format_name, ""))


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Shows on a terminal that work goes on, and for how long."""
    import sys

    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it. Raises InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made: {error.strerror or error}") from None


def write_part(part: Trace, out: Path, whole: Trace, source: Path, as_json: bool) -> None:
    """Writes what was made of another trace, and tells how many of its jobs there are."""
    from dovetail.traces.canonical import write_trace

    if out.exists() and out.samefile(source):
        raise InputError(str(out), "it is the file being read", "choose another -o")
    with busy(f"writing {out.name}"):
        write_trace(part, out)
    if as_json:
        told = {"source": str(source), "source_jobs": len(whole), "path": str(out)}
        click.echo(json.dumps({**told, "jobs": len(part), "source_counts": whole.counts}))
        return
    click.echo(f"{out}: {len(part):,} of {len(whole):,} jobs of {source}")


def write_and_tell(made: dict[Path, Trace], source: str, as_json: bool) -> None:
    """Writes traces, then prints what came of them."""
    from dovetail.traces.canonical import write_trace

    for path, one in made.items():
        with busy(f"writing {path.name}"):
            write_trace(one, path)
    tell(made, source, as_json)


def tell(made: dict[Path, Trace], source: str, as_json: bool) -> None:
    """Prints what was written, with what was left out and changed."""
    if as_json:
        told = [{"path": str(p), "jobs": len(t), "counts": t.counts} for p, t in made.items()]
        click.echo(json.dumps({"source": source, "traces": told}))
        return
    for path, one in made.items():
        click.echo(f"{path}: {len(one):,} jobs ({source})")
        for what, rows in one.counts.items():
            click.echo(f"  {what}: {rows:,}")


def open_any(file: Path) -> Trace:
    """Returns the trace in a file of any format, with the zoo's step times. Raises InputError."""
    from dovetail.traces.importing import CANONICAL, import_trace, sniff
    from dovetail.traces.readers.format import ReadOptions

    name = sniff(file)
    options = ReadOptions()
    if name != CANONICAL:
        options = ReadOptions(step_times_from_zoo(name), training=training_from_zoo(name))
    with busy(f"reading {file.name}"):
        return import_trace([file], name, options=options)


def gpus_of(cluster: str) -> int:
    """Returns the GPUs of `16x4` or of a plain number. Raises InputError."""
    from dovetail.core.cluster import Cluster

    if cluster.isdecimal() and int(cluster) > 0:
        return int(cluster)
    return Cluster.parse(cluster).gpus


def models_of(text: str | None) -> list[tuple[str, int]]:
    """Returns (model, most GPUs) from `afs` (a family of the zoo) or `name:8,name:4`."""
    if not text:
        return []
    if ":" in text:
        return [_model(part) for part in text.split(",")]
    from dovetail.core.errors import nearest
    from dovetail.physics.zoo.models import zoo

    chosen = [(n, p.max_gpus.value) for n, p in zoo().items() if n.startswith(f"{text}/")]
    if not chosen:
        families = {name.partition("/")[0] for name in zoo()}
        raise InputError(f"models '{text}'", "is no family of the zoo", nearest(text, families))
    return chosen


def _model(part: str) -> tuple[str, int]:
    name, _, most = part.rpartition(":")
    if not name or not most.isdecimal() or int(most) < 1:
        raise InputError(f"models '{part}'", "is not NAME:GPUS", "as in pollux/bert:16")
    from dovetail.physics.zoo.models import lookup

    lookup(name)
    return name, int(most)


def most_gpus(model: str) -> int:
    """Returns the most GPUs the zoo knows a model to use, 0 for a model it does not know."""
    from dovetail.physics.zoo.models import shipped

    profile = shipped().find(model)
    return 0 if profile is None else profile.max_gpus.value
