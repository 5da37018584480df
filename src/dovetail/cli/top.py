"""`dovetail top`: the cluster at a glance, drawn anew every second."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of

if TYPE_CHECKING:
    from dovetail.cli.text_table import Line
    from dovetail.live.client.client import Client
    from dovetail.live.server.messages.cluster import NodesShown, Pong
    from dovetail.live.server.messages.listing import Listed


@click.command("top")
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds from one picture to the next.",
)
@click.option(
    "--jobs",
    "limit",
    default=40,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="At most so many jobs.",
)
@asks_a_cluster
def top(home: Path, as_json: bool, once: bool, every: float, limit: int) -> None:
    """Watch the cluster: who is on which GPU, how fast jobs run, and why others wait.

    Ends with Ctrl-C. Where the output is no terminal, it prints one picture.

    \b
    Example:
      dovetail top
      dovetail top --once
    """
    client = client_of(home)
    if as_json:
        from dovetail.live.server.protocol import json_values

        said = zip(("cluster", "nodes", "jobs"), _ask(client, limit), strict=True)
        click.echo(json.dumps({name: json_values(value) for name, value in said}))
        return
    from dovetail.cli import terminal

    if once or not terminal.is_watched():
        terminal.say(frame(*_ask(client, limit), terminal.width()))
        return
    with suppress(KeyboardInterrupt), terminal.in_place() as draw:
        while True:
            draw(frame(*_ask(client, limit), terminal.width() - 1))
            sleep(every)


def _ask(client: Client, limit: int) -> tuple[Pong, NodesShown, Listed]:
    return client.ping(), client.nodes(), client.jobs(limit=limit)


def frame(pong: Pong, nodes: NodesShown, jobs: Listed, width: int) -> list[Line]:
    """Returns one picture of the cluster."""
    from dovetail.cli.cluster_tables import counts_text, jobs_lines, nodes_lines, span

    gpus = sum(len(n.gpus) for n in nodes.nodes)
    held = sum(1 for n in nodes.nodes for on in n.jobs if on)
    speed = f", time x{pong.speed:g}" if pong.speed != 1 else ""
    head = (
        f"{pong.policy.partition(':')[0]} on {pong.engine}, at {span(pong.now_s)}{speed}   "
        f"{held} of {gpus} GPUs held   {counts_text(jobs.counts)}"
    )
    lines: list[Line] = [((head, "bold"),), (), *nodes_lines(nodes.nodes, width), ()]
    if jobs.jobs:
        lines += jobs_lines(jobs.jobs, jobs.now_s, width)
    else:
        lines.append((("no jobs wait or run", ""),))
    if jobs.more:
        lines.append(((f"and {jobs.more} more jobs wait", ""),))
    return lines
