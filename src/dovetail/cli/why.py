"""`dovetail why`: where a job is and what would have to happen, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, looking_back, say_json

if TYPE_CHECKING:
    from dovetail.live.server.messages.reason import Explained


@click.command("why")
@click.argument("job")
@asks_a_cluster
def why(home: Path, as_json: bool, job: str) -> None:
    """Say why a job waits, why it has the GPUs it has, or why it ended.

    \b
    Example:
      dovetail why 12
    """
    found = looking_back(home, lambda client: client.why(job))
    if as_json:
        say_json(found)
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: Explained) -> list[str]:
    code = f" ({found.code})" if found.code != "None" else ""
    lines = [f"job {found.called} is {found.state}{code}: {found.sentence}"]
    lines += [f"  - {fact}" for fact in found.evidence]
    if found.would_start:
        lines.append(f"  to start: {found.would_start}")
    if found.decided_s >= 0:
        lines.append(f"  last decision: {max(0.0, found.now_s - found.decided_s):.0f} s ago")
    return lines
