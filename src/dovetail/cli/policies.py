"""`dovetail policies`: lists the policies with their knowledge, powers and parameters."""

from __future__ import annotations

import json
from textwrap import fill

import click

from dovetail.cli.options import json_option

WIDTH = 80


@click.command()
@click.argument("name", required=False)
@json_option
def policies(name: str | None, as_json: bool) -> None:
    """List the policies, or describe one.

    \b
    Example:
      dovetail policies
      dovetail policies tiresias
    """
    import dovetail.policies
    from dovetail.core.errors import InputError, nearest
    from dovetail.core.policy import registered, spell

    assert dovetail.policies
    known = registered()
    if name is not None and name not in known:
        raise InputError(f"policy '{name}'", "no such policy", nearest(name, known))
    listed = {
        each: {
            "does": entry.summary,
            "page": entry.page,
            "knows": sorted(entry().knows),
            "powers": sorted(entry().powers),
            "parameters": list(entry.parameters),
            "spelled": spell(entry()),
        }
        for each, entry in known.items()
        if name in (None, each)
    }
    if as_json:
        click.echo(json.dumps({"policies": listed}))
    elif name is not None:
        click.echo(f"{listed[name]['spelled']}\n\n{listed[name]['page']}")
    else:
        for each, one in listed.items():
            knows = ", ".join(one["knows"]) or "nothing"
            powers = ", ".join(one["powers"]) or "none"
            click.echo(each)
            for part in (one["does"], f"knows: {knows}; powers: {powers}", one["spelled"]):
                click.echo(
                    fill(str(part), WIDTH, initial_indent="    ", subsequent_indent="      ")
                )
