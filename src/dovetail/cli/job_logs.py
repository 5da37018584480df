"""`dovetail logs`: prints the output of a job, and follows it with `-f`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, looking_back, say_json

if TYPE_CHECKING:
    from dovetail.live.client.client import Client


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option("-n", "--tail", default=-1, type=click.IntRange(-1), help="Only the last N lines.")
@asks_a_cluster
def logs(home: Path, as_json: bool, job: str, follow: bool, tail: int) -> int:
    """Print the output of a job.

    With -f, the exit code is 0 only if the job completed.

    \b
    Example:
      dovetail logs -f 12
    """
    if follow:
        return _print(client_of(home), job, tail, as_json, follow=True)
    return looking_back(home, lambda client: _print(client, job, tail, as_json, follow=False))


def _print(client: Client, job: str, tail: int, as_json: bool, *, follow: bool) -> int:
    for piece in client.logs(job, follow=follow, tail=tail):
        if as_json:
            if piece.text or piece.end:
                say_json(piece)
        else:
            click.echo(piece.text, nl=False)
        if piece.end and follow:
            if not as_json and piece.state != "COMPLETED":
                click.echo(f"job {job} is {piece.state}", err=True)
            return 0 if piece.state == "COMPLETED" else 1
    return 0
