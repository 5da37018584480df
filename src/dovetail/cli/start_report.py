"""Passes the error of a failed start from the controller to the command that started it.

The error goes through memory: a full disk, which the log is on, is a common cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.core.errors import DovetailError


@contextmanager
def reporting(descriptor: int) -> Iterator[None]:
    """Writes the error that ends the block to an open file, unless `descriptor` is negative."""
    try:
        yield
    except (DovetailError, OSError) as error:
        if descriptor >= 0:
            os.write(descriptor, _sentence(error).encode("utf-8", "replace"))
        raise


def _sentence(error: DovetailError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'the folder of the cluster'}: {error.strerror or error}"
    return str(error)


def reported(descriptor: int) -> str:
    """Returns the reported error, empty for none."""
    return os.pread(descriptor, 1 << 16, 0).decode("utf-8", "replace")
