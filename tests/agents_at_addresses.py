"""`dovetail local-agents` with an address for each node, as several machines have.

Used as `python tests/agents_at_addresses.py ADDRESS,ADDRESS,... --home HOME --engine local:3x1`.
"""

from __future__ import annotations

import sys
from functools import partial

from dovetail.cli.main import main
from dovetail.live.engines import open_nodes

if __name__ == "__main__":
    name, addresses, *words = sys.argv
    open_nodes.LocalNodes = partial(  # type: ignore[assignment, misc]
        open_nodes.LocalNodes, hosts=addresses.split(",")
    )
    sys.argv = [name, "local-agents", *words]
    main()
