"""The options that every command about a run shares, and how they become `study.Options`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np

from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.core.trace import Trace
    from dovetail.study.options import Options

F = TypeVar("F", bound=Callable[..., Any])

WORLD_OPTIONS: Sequence[Callable[[F], F]] = (
    click.option(
        "--cluster", default="16x4", show_default=True, help="NODESxGPUS, groups, or a TOML file."
    ),
    click.option(
        "--placement",
        default="prefer,best-fit,keep",
        show_default=True,
        help="strict|prefer|none, best-fit|first-fit|most-free, keep|repack.",
    ),
    click.option(
        "--switching",
        default="restart:30",
        show_default=True,
        help="none, restart:S, per-start:S, per-resize:S, joined by commas, or a TOML file.",
    ),
    click.option(
        "--forecast",
        default="known",
        show_default=True,
        help="What is known of lengths: known, limit, noisy:SIGMA, unknown.",
    ),
    click.option(
        "--belief",
        default="exact",
        show_default=True,
        help="What is believed of speeds: exact, noisy:SIGMA.",
    ),
    click.option(
        "--physics",
        default="placed",
        show_default=True,
        help="placed (model and nodes), counted (model and GPUs), linear (GPUs only).",
    ),
    click.option(
        "--profiles", multiple=True, type=click.Path(), help="Add a measured profile set (TOML)."
    ),
    click.option(
        "--interference",
        default=1.0,
        show_default=True,
        help="Shared over alone iteration time of two jobs on one GPU.",
    ),
    click.option("--adopt", default="", help="Draw owners' flags anew, as in elastic:0.5."),
    click.option("--assign-models", is_flag=True, help="Give jobs a model of the zoo by --seed."),
    click.option(
        "--cancelled",
        default="work",
        show_default=True,
        help="Replay cancelled jobs as work, or by the clock.",
    ),
    click.option("--capacity", default="", type=click.Path(), help="A file of node changes."),
    click.option("--coalesce-s", default=0.0, show_default=True, help="Join events this close."),
    click.option("--without", default="", help="Take powers away, as in preempt,migrate."),
    click.option("--warm-up-s", default=0.0, help="Count only jobs submitted after this time."),
    click.option("--drain-s", default=0.0, help="Count no job of the last seconds."),
    click.option(
        "--seed",
        default=0,
        type=click.IntRange(0),
        show_default=True,
        help="Seed of all that is drawn.",
    ),
    click.option("--format", "format_name", default=None, help="The trace's format."),
)


def world_options(command: F) -> F:
    """Adds the shared options to a command."""
    for option in reversed(WORLD_OPTIONS):
        command = option(command)
    return command


@contextmanager
def output_folder(target: Path | None) -> Iterator[Path | None]:
    """Gives a folder that becomes `target` only if all goes well; None where none is wanted."""
    if target is None:
        yield None
        return
    from dovetail.study.run import whole_directory

    with whole_directory(target) as folder:
        yield folder


def load_trace(path: str, format_name: str | None = None) -> Trace:
    """Returns the trace of a file in any known format. Raises InputError."""
    from functools import partial

    from dovetail.cli.progress import busy
    from dovetail.physics.zoo import seconds_per_iteration
    from dovetail.workload.importing import import_trace, sniff
    from dovetail.workload.readers.format import ReadOptions

    file = Path(path)
    with busy(f"reading {file.name}"):
        name = format_name or sniff(file)
        family = name.partition("-")[0]
        seconds = partial(seconds_per_iteration, family=family)
        return import_trace([file], name, options=ReadOptions(seconds))


def with_models(trace: Trace, seed: int) -> Trace:
    """Returns the trace with a model of the zoo drawn for each job, by seed."""
    from dovetail.physics.zoo import zoo
    from dovetail.workload.transform import assign_models

    models = [(name, profile.max_gpus.value) for name, profile in sorted(zoo().items())]
    return assign_models(trace, models, seed=seed)


def seconds(option: str, value: float) -> float:
    """Returns a length of time. Raises InputError for one that cannot be."""
    if not 0 <= value < float("inf"):
        raise InputError(option, f"it must be 0 or more, not {value:g}")
    return value


def check_window(trace: Trace, options: Options) -> None:
    """Raises InputError if the window of the options leaves no job to count."""
    if not options.window.rows(trace.jobs.submit_s).any():
        raise InputError(
            "--warm-up-s and --drain-s",
            "no job is left to count",
            f"submissions last {float(np.ptp(trace.jobs.submit_s)) if len(trace) else 0:g} s",
        )


def read_options(given: dict[str, Any]) -> Options:
    """Returns the options of a run from what the command line gave. Raises InputError."""
    from dovetail.core.placing import Placing
    from dovetail.physics.profile_file import load_profiles
    from dovetail.physics.switching import Switching
    from dovetail.record.metrics import Window
    from dovetail.study.options import Options, parse_adopt
    from dovetail.workload.capacity import read_capacity
    from dovetail.workload.cluster_file import read_cluster

    cluster = read_cluster(given["cluster"])
    window = Window(
        seconds("--warm-up-s", given["warm_up_s"]), seconds("--drain-s", given["drain_s"])
    )
    for profiles in given["profiles"]:
        load_profiles(Path(profiles))
    return Options(
        cluster=cluster,
        placing=Placing.parse(given["placement"]),
        switching=Switching.parse(given["switching"]),
        forecast=given["forecast"],
        belief=given["belief"],
        adopt=parse_adopt(given["adopt"]),
        cancelled=given["cancelled"],
        capacity=read_capacity(Path(given["capacity"]), cluster) if given["capacity"] else (),
        coalesce_s=given["coalesce_s"],
        interference=given["interference"],
        physics=given["physics"],
        profiles=tuple(given["profiles"]),
        without=frozenset(filter(None, given["without"].split(","))),
        window=window,
        seed=given["seed"],
    )
