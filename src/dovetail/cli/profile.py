"""`dovetail profile`: runs a few iterations of a script and writes a profile set."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import home_option, shown_option
from dovetail.cli.options import json_option
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.physics.zoo.profile_file import ProfileSet
    from dovetail.profiling.dry_run import ParallelRun, SingleWorkerRun, TrainingScript


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-w",
    "--workers",
    default="",
    help="Numbers of workers, e.g. 1,2,4. [default: 1,2,4,... up to the GPUs or cores]",
)
@shown_option(
    "-n", "--iterations", default=20, type=click.IntRange(1), help="Iterations per configuration."
)
@click.option("--name", default="", help="Name of the model. [default: its class]")
@shown_option("--limit", "limit_s", default=600.0, help="Timeout of a configuration (s).")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write. [default: NAME.toml]",
)
@json_option
@click.option("--learned", is_flag=True, help="Write the measurements of a live cluster instead.")
@home_option
@click.argument("script", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def profile(
    workers: str,
    iterations: int,
    name: str,
    limit_s: float,
    output: Path | None,
    as_json: bool,
    learned: bool,
    home: Path,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Profile a dovetail.train script: throughput, memory and stages, in a few iterations.

    Measures gradient accumulation with one worker, and data parallelism with each larger number of
    workers, one per GPU or core. Writes a profile set for --profiles of simulate, compare and up.
    For a script without dovetail.train, measures only the wall time of a whole run.

    \b
    Example:
      dovetail profile train.py --epochs 5
      dovetail profile -w 1,2 --name digits -o digits.toml train.py
      dovetail simulate jobs.csv --policy afs-l --cluster 1x4 --profiles digits.toml
      dovetail profile --learned -o learned.toml
    """
    if learned:
        _export(home, output or Path("learned.toml"), as_json)
        return
    if not script:
        raise InputError("SCRIPT", "the script is missing", "as in `dovetail profile train.py`")
    from dovetail.profiling.dry_run import TrainingScript, worker_slots

    slots, notes = worker_slots()
    for note in notes:
        click.echo(f"note: {note}", err=True)
    counts = _counts(workers, len(slots))
    training_script = TrainingScript((*_words(script), *arguments), Path.cwd(), slots, limit_s)
    single = training_script.run_single(iterations)
    if isinstance(single, float):
        _print_wall_time(script, single, as_json)
        return
    parallel = [training_script.run_parallel(n, iterations) for n in counts if n > 1]
    _write(training_script, single, parallel, name or single.model, output, as_json)


def _words(script: str) -> tuple[str, ...]:
    """Returns the command of a script: this Python for a `.py`, else the program itself.

    Raises InputError.
    """
    path = Path(script)
    if path.suffix == ".py":
        if not path.is_file():
            raise InputError(script, "there is no such file")
        return sys.executable, str(path)
    program = shutil.which(script)
    if program is None:
        raise InputError(script, "it is neither a .py file nor an executable program")
    return (program,)


def _counts(text: str, places: int) -> list[int]:
    if not text:
        return [1 << i for i in range(places.bit_length()) if 1 << i <= places]
    try:
        counts = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InputError("--workers", f"'{text}' is not a list of numbers", "as in 1,2,4") from None
    if counts[0] < 1 or counts[-1] > places:
        raise InputError("--workers", f"this machine runs 1 to {places} workers, not {text}")
    return counts


def _print_wall_time(script: str, wall_s: float, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"script": script, "wall_s": wall_s, "profile": None}))
        return
    # A duration of 0 would mean "unknown".
    duration_s = round(wall_s) or max(round(wall_s, 1), 0.1)
    click.echo(
        f"{script} ran {wall_s:.1f} s without measurements: it does not use dovetail.train, or "
        "trains too few iterations.\n"
        f"No profile is written; specify its duration when you submit it (duration: {duration_s}s)."
    )


def _write(
    script: TrainingScript,
    single: SingleWorkerRun,
    parallel: Sequence[ParallelRun],
    name: str,
    output: Path | None,
    as_json: bool,
) -> None:
    from dovetail.profiling.profile_script import profile_set

    host, day = _here()
    command = " ".join(["dovetail profile", *(w for w in script.command if w != sys.executable)])
    where = f"{command} on {host}, {day}, {single.device}"
    profiles = profile_set(
        name, single, parallel, slots=len(script.slots), where=where, family=host
    )
    file = output or Path(f"{name}.toml")
    _keep(profiles, file)
    if as_json:
        click.echo(json.dumps(_summary(single, parallel, file)))
    else:
        _print(single, parallel, name, file)


def _here() -> tuple[str, str]:
    """Returns the name of this host and the date."""
    return platform.node() or "localhost", datetime.now(UTC).date().isoformat()


def _keep(profiles: ProfileSet, file: Path) -> None:
    """Writes a profile set, after a check that it can be read. Raises InputError."""
    from dovetail.physics.zoo.profile_file import dump_profiles, parse_profiles

    text = dump_profiles(profiles)
    parse_profiles(text, where=str(file))
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(file), f"cannot be written: {error.strerror}") from None


def _export(home: Path, file: Path, as_json: bool) -> None:
    """Writes the profiles that the cluster of a folder measured. Raises InputError."""
    from dovetail.live.engines.devices import slug
    from dovetail.live.store.folder import Folder
    from dovetail.live.store.queries import StoreReader
    from dovetail.profiling.learned_profiles import learned_set

    store = Folder(home.expanduser()).store
    if not store.exists():
        raise InputError(str(home), "there is no cluster here", "specify its folder with --home")
    with StoreReader(store) as reader:
        measurements = reader.meta("measured") or ""
    host, day = _here()
    profiles = learned_set(
        measurements, family=slug(host) or "here", where=f"a live cluster on {host}, until {day}"
    )
    _keep(profiles, file)
    names = [model.name for model in profiles.profiles]
    if as_json:
        click.echo(
            json.dumps({"models": names, "pairs": len(profiles.pairs), "profile": str(file)})
        )
        return
    click.echo(f"Wrote {file}: {', '.join(names)}; {len(profiles.pairs)} pairs on one GPU.")


def _summary(
    single: SingleWorkerRun, parallel: Sequence[ParallelRun], file: Path
) -> dict[str, object]:
    return {
        "model": single.model,
        "batch_size": single.batch_size,
        "device": single.device,
        "sub_batches": [row._asdict() for row in single.sub_batches],
        "workers": [row._asdict() for row in parallel],
        "profile": str(file),
    }


def _print(single: SingleWorkerRun, parallel: Sequence[ParallelRun], name: str, file: Path) -> None:
    click.echo(
        f"{name}: batch {single.batch_size}, {single.parameters:,} parameters, {single.device}"
    )
    click.echo(f"{'workers':>8} {'steps':>6} {'samples/s':>10} {'iteration':>10} {'memory':>9}")
    rows = [(1, s.steps, s.iteration_s, s.memory_bytes) for s in single.sub_batches]
    rows += [(t.workers, 1, t.iteration_s, t.memory_bytes) for t in parallel]
    for workers, steps, iteration_s, memory_bytes in rows:
        click.echo(
            f"{workers:>8} {steps:>6} {single.batch_size / iteration_s:>10.1f} "
            f"{1000 * iteration_s:>7.1f} ms {memory_bytes / 2**20:>5.0f} MiB"
        )
    click.echo(f"Wrote {file}; use it as --profiles {file}, and call the model '{name}' in jobs.")
