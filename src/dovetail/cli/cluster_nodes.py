"""`dovetail nodes` and `dovetail drain`: list the nodes, and take one out of service."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json
from dovetail.core.errors import InputError


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


@click.command("drain")
@click.argument("node")
@click.option("--undo", is_flag=True, help="Resume placing jobs on the node.")
@asks_a_cluster
def drain(home: Path, as_json: bool, node: str, undo: bool) -> None:
    """Stop placing jobs on a node. Its running jobs finish, under every policy.

    \b
    Example:
      dovetail drain 3
      dovetail drain 3 --undo
    """
    if not (node.isdecimal() and node.isascii() and len(node) < 10):
        raise InputError(f"node '{node}'", "is not a node number", "dovetail nodes lists them")
    client_of(home).drain(int(node), undo=undo)
    if as_json:
        click.echo(f'{{"node": {int(node)}, "draining": {"false" if undo else "true"}}}')
    else:
        click.echo(f"node {node} {'accepts jobs again' if undo else 'accepts no new jobs'}")
