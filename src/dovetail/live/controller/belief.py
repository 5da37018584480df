"""How measurements become what the policy believes."""

from __future__ import annotations

from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.recorded_tables import RecordedTables
from dovetail.live.measuring.metering import Meter

LEARNED = "measured"
"""The name under which the journal keeps what the meter learned."""


def adopt_belief(
    meter: Meter, tables: RecordedTables, log: InstantLog, *, is_new: bool = True
) -> None:
    """Gives the policy what the meter believes if it `is_new`, and keeps what is unsaved."""
    if is_new:
        tables.learn(meter.physics)
    if meter.unsaved:
        log.keep(LEARNED, meter.dump())
