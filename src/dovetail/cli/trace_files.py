"""Functions that the `trace` commands share: read any log, write traces, print a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.progress import busy
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.core.trace import Trace
    from dovetail.traces.assemble import Imported

FILE = click.Path(path_type=Path)
out_option = click.option(
    "-o", "--out", type=FILE, required=True, help="File to write: .csv, .csv.gz or .parquet."
)
_ZOO_FAMILIES = {"afs": "afs", "afs-sim": "afs", "pollux": "pollux"}


def step_times_from_zoo(format_name: str) -> Callable[[str, int], float | None] | None:
    """Returns the step times of the zoo for a format; None if the zoo has no models of it."""
    if format_name not in _ZOO_FAMILIES:
        return None
    from dovetail.physics.zoo.models import seconds_per_iteration

    return partial(seconds_per_iteration, family=_ZOO_FAMILIES[format_name])


def training_from_zoo(format_name: str) -> Callable[[str, int, int], tuple[float, float] | None]:
    """Returns the cost of a whole training by the zoo's models of the format's family."""
    from dovetail.physics.batches.goodput import training

    return partial(training, family=_ZOO_FAMILIES.get(format_name, ""))


def make_folder(folder: Path) -> None:
    """Creates a folder and its parents. Raises InputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror or error}") from None


def write_part(part: Trace, out: Path, whole: Trace, source: Path, as_json: bool) -> None:
    """Writes a trace derived from `source`; prints how many jobs it keeps, and what it lost."""
    from dovetail.traces.canonical import write_trace
    from dovetail.traces.import_record import derived

    if out.exists() and out.samefile(source):
        raise InputError(str(out), "the output is the input file", "choose another -o")
    part = derived(part, whole, f"trace {click.get_current_context().info_name}")
    with busy(f"writing {out.name}"):
        write_trace(part, out)
    known = () if whole.imported is None else whole.imported.notes
    for note in () if part.imported is None else part.imported.notes:
        if note not in known:
            click.echo(f"note: {note}", err=True)
    if as_json:
        paths = {"source": str(source), "source_jobs": len(whole), "path": str(out)}
        click.echo(json.dumps({**paths, "jobs": len(part), "source_counts": whole.counts}))
        return
    click.echo(f"{out}: {len(part):,} of {len(whole):,} jobs of {source}")


def import_notes(parts: Sequence[Imported], rejects: Path | None) -> list[str]:
    """Returns what the first lines say: assumed time zones, and jobs that were left out."""
    from dovetail.traces.loss import LEFT_OUT_MAX, loss_of, total

    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    loss = total([loss_of(part) for part in parts])
    if loss.exceeds(LEFT_OUT_MAX):
        where = f"{rejects} lists" if rejects is not None else "--rejects FILE writes"
        notes.insert(0, f"left out {loss}. {where} each such row with its line.")
    return notes


def write_and_print(
    traces: dict[Path, Trace],
    source: str,
    as_json: bool,
    notes: Sequence[str] = (),
    last: str = "",
) -> None:
    """Writes traces and prints a summary."""
    from dovetail.traces.canonical import write_trace

    for path, trace in traces.items():
        with busy(f"writing {path.name}"):
            write_trace(trace, path)
    print_summary(traces, source, as_json, notes, last)


def print_summary(
    traces: dict[Path, Trace],
    source: str,
    as_json: bool,
    notes: Sequence[str] = (),
    last: str = "",
) -> None:
    """Prints the notes, the written traces with the counts of rows not used, and a last note."""
    if as_json:
        rows = [{"path": str(p), "jobs": len(t), "counts": t.counts} for p, t in traces.items()]
        told = [*notes, last] if last else list(notes)
        click.echo(json.dumps({"source": source, "traces": rows, "notes": told}))
        return
    for note in notes:
        click.echo(f"note: {note}")
    for path, trace in traces.items():
        click.echo(f"{path}: {len(trace):,} jobs ({source})")
        for what, count in trace.counts.items():
            click.echo(f"  {what}: {count:,}")
    if last:
        click.echo(last)


def open_any(file: Path) -> Trace:
    """Returns the trace of a file in any format, with the zoo's step times. Raises InputError."""
    from dovetail.traces.importing import CANONICAL, import_rows, sniff
    from dovetail.traces.readers.format import ReadOptions

    name = sniff(file)
    options = ReadOptions()
    if name != CANONICAL:
        options = ReadOptions(step_times_from_zoo(name), training=training_from_zoo(name))
    with busy(f"reading {file.name}"):
        imported = import_rows([file], name, options=options)
    for note in imported.notes:
        click.echo(f"note: {note}", err=True)
    return imported.trace


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
        raise InputError(f"models '{text}'", "is not a family of the zoo", nearest(text, families))
    return chosen


def _model(part: str) -> tuple[str, int]:
    name, _, most = part.rpartition(":")
    if not name or not most.isdecimal() or int(most) < 1:
        raise InputError(f"models '{part}'", "is not NAME:GPUS", "as in pollux/bert:16")
    from dovetail.physics.zoo.models import lookup

    lookup(name)
    return name, int(most)


def most_gpus(model: str) -> int:
    """Returns the largest number of GPUs of a model in the zoo, 0 for an unknown model."""
    from dovetail.physics.zoo.models import shipped

    profile = shipped().find(model)
    return 0 if profile is None else profile.max_gpus.value
