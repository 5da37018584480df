"""Notes on limits of a run: ignored GPU types, unused powers, unknown models, assumed memory."""

from __future__ import annotations

from collections.abc import Mapping, Set

from dovetail.core.cluster import ASSUMED_GPU_MEMORY_BYTES, GIB
from dovetail.core.job import JobTable
from dovetail.core.trace import Trace
from dovetail.physics.zoo.device import device_memory_bytes
from dovetail.study.left_out import ignored_types
from dovetail.study.options import Options, adopted

NEEDS = (("resize", "elastic"), ("share", "shareable"), ("interleave", "shareable"))


def limit_notes(
    trace: Trace, options: Options, powers_of: Mapping[str, Set[str]], modelled: int
) -> list[str]:
    """Returns the notes on the limits of a run.

    `powers_of` has the powers by policy; `modelled` is the number of jobs whose model the physics
    knows: only these have stages and known footprints.
    """
    jobs = adopted(trace, options.adopt, options.seed).jobs
    ignored = ignored_types(trace, options.cluster)
    return [
        *([f"{ignored[0].upper()}{ignored[1:]}."] if ignored else []),
        *_idle_powers(jobs, powers_of, modelled),
        *_assumed_memory(jobs, options, powers_of, modelled),
        *_unknown_models(trace.jobs, options, modelled),
    ]


def _idle_powers(jobs: JobTable, powers_of: Mapping[str, Set[str]], modelled: int) -> list[str]:
    """Returns a note with the remedy for each power that the policies cannot use on this trace."""
    allows = {"elastic": jobs.elastic.any(), "shareable": jobs.shareable.any()}
    notes = []
    for power, flag in NEEDS:
        names = [name.partition(":")[0] for name, powers in powers_of.items() if power in powers]
        whom = ", ".join(dict.fromkeys(names))
        if names and not allows[flag]:
            notes.append(f"No job is {flag}, so {whom} could {power} none (--adopt {flag}:1).")
        elif names and power == "interleave" and not modelled:
            notes.append(
                f"No job's stages are known, so {whom} could interleave none: that takes models "
                "(--assign-models) and --physics placed or counted."
            )
    return notes


def _assumed_memory(
    jobs: JobTable, options: Options, powers_of: Mapping[str, Set[str]], modelled: int
) -> list[str]:
    """Returns a note if an assumed GPU memory decides which jobs may share a GPU."""
    shares = any({"share", "interleave"} & set(powers) for powers in powers_of.values())
    if options.physics == "linear" or not (shares and modelled and jobs.shareable.any()):
        return []
    assumed = any(
        group.gpu_memory_bytes == ASSUMED_GPU_MEMORY_BYTES
        and device_memory_bytes(group.gpu_type) is None
        for group in options.cluster.groups
    )
    if not assumed:
        return []
    return [
        f"Jobs share a GPU only if they fit its {ASSUMED_GPU_MEMORY_BYTES / GIB:g} GiB, which is "
        "the default: give the memory of a GPU with the cluster, as in --cluster 8x8/32G."
    ]


def _unknown_models(jobs: JobTable, options: Options, modelled: int) -> list[str]:
    """Returns a note on the number of jobs whose model the physics does not know."""
    named = sum(bool(name) for name in jobs.model.texts())
    if options.physics == "linear" or jobs.graphs or named <= modelled:
        return []
    return [
        f"{named - modelled:,} jobs name a model that is not known, and scale linearly (`dovetail "
        "models` lists those that are)."
    ]
