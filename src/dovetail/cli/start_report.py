"""What a controller that gives up at its start says to the command that started it.

The log may be on a full disk, which is often why it gives up; so this goes through memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.core.errors import DovetailError


@contextmanager
def reporting(descriptor: int) -> Iterator[None]:
    """Writes what ends the block into an open file, unless `descriptor` is below 0."""
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
    """Returns what was reported, empty for nothing."""
    return os.pread(descriptor, 1 << 16, 0).decode("utf-8", "replace")
