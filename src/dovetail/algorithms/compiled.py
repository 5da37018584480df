"""Machine code for the few loops that numpy cannot express. Its import takes 0.3 s: do it late."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Returns the function compiled at its first call, kept on disk for later processes.

    numba writes beside the source or, where that is read-only, into the user's cache folder;
    where neither can be written each process compiles anew.
    """
    try:
        return _njit(function, cache=True)
    except RuntimeError:  # numba: "cannot cache function: no locator available"
        return _njit(function, cache=False)


def _njit(function: Function, *, cache: bool) -> Function:
    compiled_function: Function = numba.njit(function, cache=cache, nogil=True)
    return compiled_function
