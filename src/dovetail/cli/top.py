"""`dovetail top`, `nodes` and `drain`: the screen of a cluster, its nodes, one out of service."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json, shown_option
from dovetail.core.errors import InputError

if TYPE_CHECKING:
    from dovetail.cli.text_table import Line
    from dovetail.live.client.client import Client
    from dovetail.live.server.messages.cluster import NodeList, PingReply
    from dovetail.live.server.messages.listing import JobList


@click.command("top")
@click.option("--once", is_flag=True, help="Print the cluster once and exit.")
@shown_option("--every", default=1.0, type=click.FloatRange(0.1), help="Seconds between updates.")
@shown_option(
    "--jobs", "limit", default=40, type=click.IntRange(1, 1000), help="Number of jobs to show."
)
@asks_a_cluster
def top(home: Path, as_json: bool, once: bool, every: float, limit: int) -> None:
    """Monitor the cluster: the jobs on each GPU, their progress, and why others wait.

    Press Ctrl-C to exit. If the output is not a terminal, prints the cluster once.

    \b
    Example:
      dovetail top
      dovetail top --once
    """
    client = client_of(home)
    if as_json:
        from dovetail.live.server.protocol import json_values

        replies = zip(("cluster", "nodes", "jobs"), _ask(client, limit), strict=True)
        click.echo(json.dumps({name: json_values(reply) for name, reply in replies}))
        return
    from dovetail.cli import terminal

    if once or not terminal.is_watched():
        terminal.say(frame(*_ask(client, limit), terminal.width()))
        return
    with suppress(KeyboardInterrupt), terminal.in_place() as draw:
        while True:
            draw(frame(*_ask(client, limit), terminal.width() - 1))
            sleep(every)


def _ask(client: Client, limit: int) -> tuple[PingReply, NodeList, JobList]:
    return client.ping(), client.nodes(), client.jobs(limit=limit)


def frame(pong: PingReply, nodes: NodeList, jobs: JobList, width: int) -> list[Line]:
    """Returns the screen: a headline, the nodes and the jobs."""
    from dovetail.cli.cluster_tables import counts_text, jobs_lines, nodes_lines, span

    gpus = sum(len(n.gpus) for n in nodes.nodes)
    used = sum(1 for n in nodes.nodes for on in n.jobs if on)
    speed = f", time x{pong.speed:g}" if pong.speed != 1 else ""
    headline = (
        f"{pong.policy.partition(':')[0]} on {pong.engine}, at {span(pong.now_s)}{speed}   "
        f"{used} of {gpus} GPUs in use   {counts_text(jobs.counts)}"
    )
    lines: list[Line] = [((headline, "bold"),), (), *nodes_lines(nodes.nodes, width), ()]
    if jobs.jobs:
        lines += jobs_lines(jobs.jobs, jobs.now_s, width)
    else:
        lines.append((("no jobs are pending or running", ""),))
    if jobs.more:
        lines.append(((f"and {jobs.more} more pending jobs", ""),))
    return lines


@click.command("nodes")
@asks_a_cluster
def nodes(home: Path, as_json: bool) -> None:
    """List the nodes and the jobs on each of their GPUs.

    \b
    Example:
      dovetail nodes
    """
    reply = client_of(home).nodes()
    if as_json:
        say_json(reply)
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import nodes_lines

    terminal.say(nodes_lines(reply.nodes, terminal.width()))


@click.command("tenants")
@asks_a_cluster
def tenants(home: Path, as_json: bool) -> None:
    """List queues, accounts and users: what each deserves, holds, waits for and has used.

    Used are mean GPUs by the half-life of the policy tenancy; other policies count no use.

    \b
    Example:
      dovetail tenants
    """
    reply = client_of(home).tenants()
    if as_json:
        say_json(reply)
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import tenants_lines

    terminal.say(tenants_lines(reply, terminal.width()))


@click.command("drain")
@click.argument("node", metavar="NODE[:GPU]")
@click.option("--reason", default="", help="Why; `dovetail nodes` shows it.")
@click.option("--undo", is_flag=True, help="Resume placing jobs there.")
@asks_a_cluster
def drain(home: Path, as_json: bool, node: str, reason: str, undo: bool) -> None:
    """Stop placing jobs on a node, or on one GPU of it. Running jobs finish, under every policy.

    A drain of the node and drains of its GPUs are undone apart.

    \b
    Example:
      dovetail drain 3 --reason "fan replaced on Friday"
      dovetail drain 3:2 --reason "XID 48"
      dovetail drain 3 --undo
    """
    client = client_of(home)
    number, gpu = _place_of(node, client)
    client.drain(number, gpu=gpu, reason=reason, undo=undo)
    if as_json:
        at = {"node": number} if gpu < 0 else {"node": number, "gpu": gpu}
        click.echo(json.dumps({**at, "draining": not undo}))
    else:
        label = node.partition(":")[0]
        what = f"node {label}" if gpu < 0 else f"GPU {gpu} of node {label}"
        click.echo(f"{what} {'accepts jobs again' if undo else 'accepts no new jobs'}")


def _place_of(text: str, client: Client) -> tuple[int, int]:
    """Returns the node and the GPU (-1: all of it) of `3`, `n1` or `n1:2`. Raises InputError."""
    node, colon, gpu = text.partition(":")
    named = {row.label: row.node for row in client.nodes().nodes}
    if node not in named or (colon and not (gpu.isdecimal() and gpu.isascii() and len(gpu) < 10)):
        what = "is not NODE:GPU, as in 3:2" if colon and node in named else "there is no such node"
        raise InputError(f"node '{text}'", what, "dovetail nodes lists them")
    return named[node], int(gpu) if colon else -1
