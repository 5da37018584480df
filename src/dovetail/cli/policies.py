"""`dovetail policies`: what each policy is, knows and does, and its parameters."""

from __future__ import annotations

import dataclasses
import json
import sys
from textwrap import fill

import click

WIDTH = 80


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def policies(name: str | None, as_json: bool) -> None:
    """List the policies, or say all about one.

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
    said = {}
    for each, cls in known.items():
        if name in (None, each):
            page = (sys.modules[cls.__module__].__doc__ or "").strip()
            said[each] = {
                "does": page.split("\n", 1)[0],
                "page": page,
                "knows": sorted(cls().knows),
                "powers": sorted(cls().powers),
                "parameters": [f.name.replace("_", "-") for f in dataclasses.fields(cls)],
                "spelled": spell(cls()),
            }
    if as_json:
        click.echo(json.dumps({"policies": said}))
    elif name is not None:
        click.echo(f"{said[name]['spelled']}\n\n{said[name]['page']}")
    else:
        for each, one in said.items():
            knows = ", ".join(one["knows"]) or "nothing"
            powers = ", ".join(one["powers"]) or "none"
            said_of_it = (
                str(one["does"]),
                f"knows: {knows}; powers: {powers}",
                str(one["spelled"]),
            )
            click.echo(each)
            for part in said_of_it:
                click.echo(fill(part, WIDTH, initial_indent="    ", subsequent_indent="      "))
