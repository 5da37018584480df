"""Where the processes of a plain program meet: torchrun's MASTER_ADDR and MASTER_PORT.

The agent of the first node picks the port when the processes are to start, and they start when it
has said which. All processes of one start have the same one, also those that start late.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.core.units import LONG_AGO_S
from dovetail.wire.agent import FindPort, PortFound


@dataclass(slots=True)
class RendezvousAddress:
    """The address for the start of a `generation`, "" until it is known; `sent_s`: asked last."""

    generation: int = -1
    address: str = ""
    sent_s: float = LONG_AGO_S

    def ask(self, job: int, now: float) -> FindPort:
        """Returns the order that asks for it."""
        self.sent_s = now
        return FindPort(job, self.generation)

    def take(self, found: PortFound) -> bool:
        """Takes the first answer for this start; returns whether it is one."""
        if self.address or not found.address or found.generation != self.generation:
            return False
        self.address = found.address
        return True
