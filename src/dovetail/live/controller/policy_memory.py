"""What the policy keeps of its memory for the next controller: shares used, stops, notices.

It is written with the decision that it follows from, in one journal entry. Jobs go by number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from dovetail.core.policy import UNTIL_S, Policy, kept_of, recalled
from dovetail.live.controller.instant_log import InstantLog
from dovetail.live.controller.live_jobs import LiveJobs
from dovetail.live.edges.protocols import POLICY_MEMORY

LOG = logging.getLogger(__name__)


class PolicyMemory:
    """Writes what the policy keeps; `first` is its memory at the start of this controller."""

    def __init__(
        self, policy: Policy, jobs: LiveJobs, log: InstantLog, text: str, now: float
    ) -> None:
        self._policy, self._jobs, self._log, self._text = policy, jobs, log, text
        self.first = policy.initial
        kept = _parsed(text)
        rows = {str(job.number): job.row for job in jobs}
        try:
            self.first = recalled(policy, kept, rows)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            LOG.error("what the policy kept is damaged, and begins anew: %r", error)
            kept = {}
        if kept and not self._written(self.first) and UNTIL_S not in kept:
            # This policy keeps nothing: whoever does must know since when nobody counted.
            self._keep({**kept, UNTIL_S: now})

    def note(self, memory: object) -> None:
        """Adds what the policy keeps of its memory after a decision to the present entry."""
        kept = self._written(memory)
        if kept:
            self._keep(kept)

    def _written(self, memory: object) -> Mapping[str, object]:
        return kept_of(self._policy, memory, lambda row: str(self._jobs.numbers[row]))

    def _keep(self, kept: Mapping[str, object]) -> None:
        text = json.dumps(kept, separators=(",", ":"))
        if text != self._text:
            self._text = text
            self._log.keep(POLICY_MEMORY, text)


def _parsed(text: str) -> Mapping[str, object]:
    try:
        kept = json.loads(text or "{}")
    except ValueError as error:
        LOG.error("what the policy kept is damaged, and begins anew: %s", error)
        return {}
    return kept if isinstance(kept, dict) else {}
