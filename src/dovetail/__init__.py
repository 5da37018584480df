"""Dovetail: one scheduler that fits deep-learning training jobs together on a GPU cluster.

The Python interface is `dovetail.api`; its names are offered here too and imported on first use.
"""

from typing import TYPE_CHECKING

from dovetail.version import __version__

__all__ = [
    "Bounds",
    "InputError",
    "Ranking",
    "Run",
    "Trace",
    "__version__",
    "bound",
    "compare",
    "generate",
    "import_trace",
    "list_models",
    "list_policies",
    "read_trace",
    "replay",
    "simulate",
    "to_frame",
    "write_trace",
]

if TYPE_CHECKING:
    from dovetail.api import (
        Bounds,
        InputError,
        Ranking,
        Run,
        Trace,
        bound,
        compare,
        generate,
        import_trace,
        list_models,
        list_policies,
        read_trace,
        replay,
        simulate,
        to_frame,
        write_trace,
    )


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'dovetail' has no attribute '{name}'")
    from dovetail import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
