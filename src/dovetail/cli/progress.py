"""Progress on standard error: a bar with the time left, only where a person is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

SHOW_AFTER_S = 0.5
REFRESH_S = 0.2


@contextmanager
def bar(title: str, total: float, *, quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """Gives a function that takes how much of `total` is done."""
    if quiet or not sys.stderr.isatty() or total <= 0:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    shown = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = shown.add_task(title, total=total)
    began = last = monotonic()
    started = False

    def show(done: float) -> None:
        nonlocal last, started
        now = monotonic()
        if now - last < REFRESH_S or now - began < SHOW_AFTER_S:
            return
        last = now
        if not started:
            shown.start()
            started = True
        shown.update(task, completed=min(done, total))

    try:
        yield show
    finally:
        if started:
            shown.stop()
