"""`dovetail`, whose controllers take no node for lost: for tests of real jobs on a busy machine.

There an agent may stand still for longer than controllers usually wait for it. Its jobs would
begin anew then, as they should, and that is tested where time is virtual.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.cli.main import main
from dovetail.live.serving import serve as live_run
from dovetail.live.workers.rules import Rules
from patience import PATIENCE_S

usual = live_run.rules_at_speed


def patient(speed: float) -> Rules:
    """Returns the usual patience of a world, and more with its nodes than any test has."""
    return replace(usual(speed), node_patience_s=2.0 * PATIENCE_S * speed)


if __name__ == "__main__":
    live_run.rules_at_speed = patient
    main()
