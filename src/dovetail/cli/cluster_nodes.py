"""`dovetail nodes` and `dovetail drain`: the machines, and taking one out of service."""

from __future__ import annotations

from pathlib import Path

import click

from dovetail.cli.cluster_options import asks_a_cluster, client_of, say_json
from dovetail.core.errors import InputError


@click.command("nodes")
@asks_a_cluster
def nodes(home: Path, as_json: bool) -> None:
    """List the nodes, and which jobs are on each of their GPUs.

    \b
    Example:
      dovetail nodes
    """
    found = client_of(home).nodes()
    if as_json:
        say_json(found)
        return
    from dovetail.cli import terminal
    from dovetail.cli.cluster_tables import nodes_lines

    terminal.say(nodes_lines(found.nodes, terminal.width()))


@click.command("drain")
@click.argument("node")
@click.option("--undo", is_flag=True, help="Give it work again.")
@asks_a_cluster
def drain(home: Path, as_json: bool, node: str, undo: bool) -> None:
    """Give a node no new work; what runs there may finish, whatever the policy.

    \b
    Example:
      dovetail drain 3
      dovetail drain 3 --undo
    """
    if not (node.isdecimal() and node.isascii() and len(node) < 10):
        raise InputError(f"node '{node}'", "is no number of a node", "dovetail nodes lists them")
    client_of(home).drain(int(node), undo=undo)
    if as_json:
        click.echo(f'{{"node": {int(node)}, "draining": {"false" if undo else "true"}}}')
    else:
        click.echo(f"node {node} {'takes work again' if undo else 'takes no new work'}")
