"""Opens traces of any format for simulations, and assigns models to their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dovetail.core.trace import Trace
from dovetail.physics.batches.goodput import training
from dovetail.physics.zoo.models import seconds_per_iteration, zoo
from dovetail.traces.assemble import KEEP, Imported
from dovetail.traces.importing import import_rows, sniff
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.transform import assign_models


def open_traces(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
    timezone: str = "",
) -> Trace:
    """Returns one trace of files of one format, with a queue for each virtual cluster."""
    return open_rows(
        paths,
        format_name,
        origin=origin,
        cpu_only=cpu_only,
        fractions=fractions,
        timezone=timezone,
    ).trace


def open_rows(
    paths: Sequence[Path | str],
    format_name: str | None = None,
    *,
    origin: str = "week",
    cpu_only: str = "",
    fractions: str = KEEP,
    timezone: str = "",
) -> Imported:
    """Returns the trace as `open_traces` does, with each rejected row and what was assumed.

    For formats with iterations or models instead of seconds, the zoo provides the step times.
    Raises InputError.
    """
    files = [Path(p) for p in paths]
    name = format_name or (sniff(files[0]) if files else None)
    family = (name or "").partition("-")[0]
    seconds = partial(seconds_per_iteration, family=family)
    options = ReadOptions(seconds, timezone=timezone, training=partial(training, family=family))
    return import_rows(
        files, name, options=options, origin=origin, cpu_only=cpu_only, fractions=fractions
    )


def with_models(trace: Trace, seed: int) -> Trace:
    """Returns the trace with a random model of the zoo for each job, by seed."""
    models = [(name, profile.max_gpus.value) for name, profile in sorted(zoo().items())]
    return assign_models(trace, models, seed=seed)
