"""`dovetail` with a controller whose leases are short: `python tests/short_leases.py up ...`."""

from __future__ import annotations

from dataclasses import replace

from dovetail.cli.main import main
from dovetail.live.serving import serve
from dovetail.live.workers.rules import Rules

GRACE_S, MARGIN_S = 2.0, 8.0
"""The margin bounds how late a keeper may look on a busy machine: a second, and what it waits."""
RULES_AT_SPEED = serve.rules_at_speed


def short(speed: float) -> Rules:
    """Returns rules by which a node is down after 4 s, and lost 10 s after its lease."""
    return replace(
        RULES_AT_SPEED(speed),
        node_patience_s=4.0,
        inventory_every_s=2.0,
        lease_grace_s=GRACE_S,
        lease_margin_s=MARGIN_S,
        backoff_s=(0.2, 0.5, 1.0),
    )


if __name__ == "__main__":
    serve.rules_at_speed = short
    main()
