"""`dovetail agent`, whose nodes have addresses of their own, as those of several machines have.

Used as `python tests/agents_at_addresses.py ADDRESS,ADDRESS,... --home HOME --engine local:3x1`.
"""

from __future__ import annotations

import sys
from functools import partial

from dovetail.cli.main import main
from dovetail.live.engines import local

if __name__ == "__main__":
    name, addresses, *words = sys.argv
    local.LocalNodes = partial(  # type: ignore[assignment, misc]
        local.LocalNodes, hosts=addresses.split(",")
    )
    sys.argv = [name, "agent", *words]
    main()
