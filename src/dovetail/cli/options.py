"""The options that every command about a run shares, and how they become `study.Options`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dovetail.cli.progress import busy

if TYPE_CHECKING:
    from dovetail.core.trace import Trace

F = TypeVar("F", bound=Callable[..., Any])

WORLD_OPTIONS: Sequence[Callable[[F], F]] = (
    click.option(
        "--cluster",
        default="16x4",
        show_default=True,
        help="NODESxGPUS[:TYPE][/MEMORY], groups joined by +, or a TOML file.",
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
        help="none, restart:S, per-start:S or per-start:profile, per-resize:S, prepared:S, "
        "one-by-one, limit:S, joined by commas, or a TOML file.",
    ),
    click.option(
        "--forecast",
        default="known",
        show_default=True,
        help="What is known of lengths: known, limit, predicted[:METHOD], noisy:SIGMA, unknown.",
    ),
    click.option(
        "--belief",
        default="exact",
        show_default=True,
        help="How wrong policies are: exact, or scaling:SIGMA, interference:SIGMA (noisy:SIGMA: "
        "both), stages:N, memory:SIGMA, joined by commas.",
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
        default="measured",
        show_default=True,
        help="How jobs on one GPU slow each other: measured, or one ratio (>= 1) for all.",
    ),
    click.option(
        "--cycle",
        default="overlapped",
        show_default=True,
        help="How stages take turns: overlapped or barrier, no-contention, no-floor, three-stages.",
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


def load_trace(path: str, format_name: str | None, models_by_seed: int | None = None) -> Trace:
    """Returns the trace of a file in any known format, with models drawn by a seed if one is given.

    Raises InputError.
    """
    from dovetail.study.traces import open_traces, with_models

    with busy(f"reading {Path(path).name}"):
        trace = open_traces([path], format_name)
        return trace if models_by_seed is None else with_models(trace, models_by_seed)
