"""`dovetail backup` and `dovetail restore`: a cluster in one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, counted, say_json

if TYPE_CHECKING:
    from dovetail.live.store.backup import Backup


@click.command("backup")
@click.argument("file", type=click.Path(path_type=Path))
@asks_a_cluster
def backup(home: Path, as_json: bool, file: Path) -> None:
    """Write a backup of the cluster to FILE, in place of an older one.

    It may run at any time. FILE has all jobs, their history, and the options, cluster file and
    token of the cluster; keep it as secret as the token. Files that jobs wrote are not in it.

    \b
    Example:
      dovetail backup /backups/cluster.db
    """
    from dovetail.live.store.backup import write_backup
    from dovetail.live.store.folder import Folder

    _say(write_backup(Folder(home), file), as_json, f"backup {file}")


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@asks_a_cluster
def restore(home: Path, as_json: bool, file: Path) -> None:
    """Make the folder of a cluster from the backup FILE; then start it with `dovetail up`.

    The folder must have no store yet. Be sure that the controller of the old folder cannot run any
    more.

    \b
    Example:
      dovetail restore /backups/cluster.db --home ~/.dovetail
    """
    from dovetail.live.store.backup import restore_backup
    from dovetail.live.store.folder import Folder

    folder = Folder(home)
    _say(restore_backup(file.expanduser(), folder), as_json, f"restored {folder.home}")


def _say(made: Backup, as_json: bool, what: str) -> None:
    if as_json:
        say_json(made)
        return
    size = f"{made.bytes / 1e6:.1f} MB"
    beside = f", with {', '.join(made.files)}" if made.files else ""
    click.echo(f"{what}: {counted(made.jobs, 'job')}, {size}{beside}")
