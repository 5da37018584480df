"""The constants that every package means alike: times, and when two numbers are equal."""

from __future__ import annotations

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
WEEK_S = 7 * DAY_S
NEVER_S = float("inf")
"""The time of an event that does not happen."""
LONG_AGO_S = float("-inf")
"""The time of an event before all others: nothing has happened yet."""
RELATIVE_TOLERANCE = 1e-9
"""Two numbers that differ by less than this part of the larger one are a tie."""
RESTART_S = 30.0
"""A full restart of a training framework takes tens of seconds (AFS section 2.1)."""
