"""The options that all simulation commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from dovetail.cli.cluster_options import shown_option
from dovetail.cli.progress import busy
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.core.trace import Trace
    from dovetail.study.options import Options

F = TypeVar("F", bound=Callable[..., object])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
processes_option = click.option(
    "--processes",
    default=0,
    type=click.IntRange(0),
    help="Number of worker processes. [default: one per core]",
)
folder_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder to write."
)

BELIEF_OPTIONS: Sequence[Callable[[F], F]] = (
    shown_option(
        "--belief",
        default="exact",
        help="Errors in the speeds the policy sees: exact, or scaling:SIGMA, interference:SIGMA "
        "(noisy:SIGMA: both), stages:N, memory:SIGMA, separated by commas.",
    ),
    shown_option(
        "--placement",
        default="prefer,best-fit,keep",
        help="strict|prefer|none, best-fit|first-fit|most-free, keep|repack.",
    ),
    shown_option(
        "--physics",
        default="placed",
        help="Speed model: placed (model and nodes), counted (model and GPUs), linear (GPUs only).",
    ),
    click.option(
        "--profiles", multiple=True, type=click.Path(), help="A measured profile set (TOML) to add."
    ),
    shown_option(
        "--interference",
        default="measured",
        help="Slowdown of jobs that share a GPU: measured, measured,host:CAPACITY (jobs that a "
        "GPU's share of the host feeds), or one ratio (>= 1) for all pairs.",
    ),
    shown_option(
        "--cycle",
        default="overlapped",
        help="Interleaving of stages: overlapped, barrier, no-contention, no-floor, three-stages.",
    ),
    click.option("--without", default="", help="Powers to disable, e.g. preempt,migrate."),
    shown_option("--seed", default=0, type=click.IntRange(0), help="Random seed."),
)
"""The options of the speeds that a policy sees; `up` has them too."""
WORLD_OPTIONS: Sequence[Callable[[F], F]] = (
    shown_option(
        "--cluster",
        default="",
        show_default=False,
        help="NODESxGPUS[:TYPE][/MEMORY], groups separated by +, or a TOML file. [default: the "
        "one that fits the log, else 16x4]",
    ),
    shown_option(
        "--switching",
        default="restart:30",
        help="none, restart:S, per-start:S or per-start:profile, per-resize:S, prepared:S, "
        "one-by-one, limit:S, separated by commas, or a TOML file.",
    ),
    shown_option(
        "--forecast",
        default="available",
        help="Job lengths the policy sees: available (what a site has: limits, predictions), "
        "known, limit, predicted[:METHOD], noisy:SIGMA, unknown; with ,expected what is left of a "
        "job is the mean of a learned distribution.",
    ),
    *BELIEF_OPTIONS,
    click.option("--adopt", default="", help="Redraw the jobs' flags, e.g. elastic:0.5."),
    click.option("--assign-models", is_flag=True, help="Assign zoo models to jobs, by --seed."),
    shown_option(
        "--cancelled",
        default="work",
        help="Cancelled jobs end after their work (work) or at their recorded time (clock).",
    ),
    click.option(
        "--capacity",
        default="",
        type=click.Path(),
        help="File of node changes, or inferred: from the nodes that the log saw in use.",
    ),
    shown_option("--coalesce-s", default=0.0, help="Merge events within this time."),
    click.option("--warm-up-s", default=0.0, help="Exclude jobs submitted before this time."),
    click.option("--drain-s", default=0.0, help="Exclude jobs submitted in the last seconds."),
    shown_option(
        "--allow-left-out",
        default="1%",
        help="Share of jobs or GPU-hours that may be left out because they never fit.",
    ),
    click.option("--format", "format_name", default=None, help="Format of the trace."),
)


def world_options(command: F) -> F:
    """Adds the options of a simulation to a command."""
    return reduce(lambda decorated, option: option(decorated), reversed(WORLD_OPTIONS), command)


def belief_options(command: F) -> F:
    """Adds the options of the speeds that a policy sees to a command."""
    return reduce(lambda decorated, option: option(decorated), reversed(BELIEF_OPTIONS), command)


@contextmanager
def output_folder(target: Path | None) -> Iterator[Path | None]:
    """Yields a folder that becomes `target` only on success; None without a target."""
    if target is None:
        yield None
        return
    from dovetail.study.run import whole_directory

    with whole_directory(target) as folder:
        yield folder


def say_left_out(trace: Trace, options: Options, as_json: bool) -> list[str]:
    """Prints first what is left out of a run or ignored; returns it as sentences.

    Raises InputError if it is too much.
    """
    from dovetail.study.left_out import as_sentence, check_left_out

    notes = check_left_out(trace, options)
    for note in notes:
        click.echo(f"note: {note}", err=as_json)
    return [as_sentence(note) for note in notes]


def say_lost_rows(trace: Trace, most: float, as_json: bool) -> None:
    """Prints first which rows of the log are missing. Raises InputError if too many are."""
    from dovetail.study.left_out import lost_rows

    for note in lost_rows(trace, most):
        click.echo(f"note: {note}", err=as_json)


def load_trace(path: str, format_name: str | None, models_by_seed: int | None = None) -> Trace:
    """Returns the trace of a file in any known format; with a seed, assigns models at random.

    Raises InputError.
    """
    from dovetail.study.traces import open_rows, with_models

    with busy(f"reading {Path(path).name}"):
        imported = open_rows([path], format_name)
        trace = imported.trace
        chosen = trace if models_by_seed is None else with_models(trace, models_by_seed)
    for note in imported.notes:
        click.echo(f"note: {note}", err=True)
    return chosen


def refuse_unused(option: str, uses_it: str, *, used: bool) -> None:
    """Raises InputError if an option was given and nothing uses it. `uses_it` says what would."""
    source = click.get_current_context().get_parameter_source(option.strip("-").replace("-", "_"))
    if not used and source is not click.core.ParameterSource.DEFAULT:
        raise InputError(option, f"only {uses_it} uses it", "leave it out")
