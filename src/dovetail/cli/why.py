"""`dovetail why`: explains the state of a job, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, looking_back, say_json

if TYPE_CHECKING:
    from dovetail.live.server.messages.reason import JobExplanation


@click.command("why")
@click.argument("job")
@asks_a_cluster
def why(home: Path, as_json: bool, job: str) -> None:
    """Explain why a job waits, why it runs on its GPUs, or why it ended.

    \b
    Example:
      dovetail why 12
    """
    explanation = looking_back(home, lambda client: client.why(job))
    if as_json:
        say_json(explanation)
        return
    for line in _lines(explanation):
        click.echo(line)


def _lines(explanation: JobExplanation) -> list[str]:
    code = f" ({explanation.code})" if explanation.code != "None" else ""
    lines = [f"job {explanation.called} is {explanation.state}{code}: {explanation.sentence}"]
    lines += [f"  - {fact}" for fact in explanation.evidence]
    if explanation.would_start:
        lines.append(f"  to start: {explanation.would_start}")
    if explanation.decided_s >= 0:
        lines.append(
            f"  last decision: {max(0.0, explanation.now_s - explanation.decided_s):.0f} s ago"
        )
    return lines
