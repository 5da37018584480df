"""The options and output functions that all commands of a live cluster share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from dovetail.live.client.client import Client

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
DEFAULT_HOME = "~/.dovetail"
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C stopped, as in shells."""

shown_option = partial(click.option, show_default=True)
"""An option whose default is shown in its help."""
home_option = shown_option(
    "--home",
    default=DEFAULT_HOME,
    envvar="DOVETAIL_HOME",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Folder of the cluster.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def asks_a_cluster(command: F) -> F:
    """Adds `--home` and `--json` to a command."""
    return home_option(json_option(command))


def client_of(home: Path) -> Client:
    """Returns a client of the cluster in a folder."""
    from dovetail.live.client.client import Client

    return Client(home)


def looking_back(home: Path, ask: Callable[[Client], T]) -> T:
    """Returns the answer of the controller, or of the folder alone if no controller runs."""
    from dovetail.live.client.client import ControllerDown

    try:
        return ask(client_of(home))
    except ControllerDown:
        own = controller_folder(home)
        if not os.access(own / "store.db", os.R_OK):
            raise
    from dovetail.live.client.offline import OfflineClient

    click.echo("note: no controller is running; this is the state at its last stop", err=True)
    return ask(OfflineClient(own))


def controller_folder(home: Path) -> Path:
    """Returns where the controller keeps its files: in a shared home, a part of that."""
    own = home.expanduser() / "controller"
    return own if own.is_dir() else home.expanduser()


def counted(number: int, noun: str) -> str:
    """Returns `1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def say_json(message: object) -> None:
    """Prints a reply as one JSON object."""
    from dovetail.live.server.protocol import json_values

    click.echo(json.dumps(json_values(message)))
