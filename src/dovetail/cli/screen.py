"""Prints the tables of `report.tables`: in colour on a terminal, 80 columns wide elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(view: RenderableType) -> None:
    """Prints a table or a view on standard output."""
    from rich.console import Console

    Console(highlight=False).print(view)
