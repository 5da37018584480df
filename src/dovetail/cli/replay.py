"""`dovetail replay`: a recorded run again, decision by decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dovetail.core.placement import Placement

SHOWN = 10


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--policy", "-p", default="", help="Another policy than the recorded one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(log: Path, policy: str, as_json: bool) -> int:
    """Replay an event log: would the policy decide the same again?

    The events come from the log; each decision is compared with the recorded one. Exit code 1
    when any differs.

    \b
    Example:
      dovetail replay srtf-run/events.jsonl
    """
    from dovetail.cli.progress import bar
    from dovetail.study.replay import replay as run

    with bar("replaying", 1.0) as show:
        found = run(log, policy, progress=show)
    names = found.trace.jobs.job_id
    if as_json:
        differences = [
            {
                "t": d.t,
                "job": names[d.job],
                "recorded": _where(d.recorded),
                "now": _where(d.decided),
            }
            for d in found.differences
        ]
        said = {
            "policy": found.policy,
            "decisions": found.decisions,
            "differences": differences,
        }
        click.echo(json.dumps(said))
    else:
        click.echo(
            f"{found.policy}: {found.decisions} decisions, {len(found.differences)} placements "
            "differ from the log"
        )
        for d in found.differences[:SHOWN]:
            click.echo(
                f"  at {d.t:g} s job {names[d.job]}: recorded {_where(d.recorded)}, "
                f"now {_where(d.decided)}"
            )
        if len(found.differences) > SHOWN:
            click.echo(f"  and {len(found.differences) - SHOWN} more (--json lists them all)")
    return 1 if found.differences else 0


def _where(placement: Placement | None) -> str:
    if placement is None:
        return "not running"
    return " + ".join(f"{gpus} on node {node}" for node, gpus in placement.spans)
