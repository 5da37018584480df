"""Progress bars on standard error, only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from time import monotonic

SHOW_AFTER_S = 0.5
REFRESH_S = 0.2


@contextmanager
def bar(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yields a function that reports how much of `total` is done."""
    if not sys.stderr.isatty() or total <= 0:
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


@contextmanager
def busy(title: str) -> Iterator[None]:
    """Shows the elapsed time of a step whose duration is unknown."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    shown.add_task(title, total=None)
    timer = Timer(SHOW_AFTER_S, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        shown.stop()
