"""What must hold of a worker's generations, and of the messages that it sent, at any time."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.wire.generation import WorkerGenerations
from dovetail.wire.worker import Entered, Finished, FromWorker, Ready, WorkerLeft


def violations(state: WorkerGenerations) -> list[str]:
    """Returns what is wrong with the state of a worker, in sentences."""
    wrong = []
    if any(state.number not in order.members for order in state._open.values()):
        wrong.append("it prepares for a generation of others")
    if any(g <= state.entered for g in state._open):
        wrong.append("it may enter a generation that is over")
    if state.entered > state.newest or max(state._joined, default=-1) > state.newest:
        wrong.append("it joined a generation that was not ordered")
    if state.entered >= 0 and state.entered not in state._joined:
        wrong.append("it entered a generation that it had not joined")
    if state.entered >= 0 and not state.was_member:
        wrong.append("it entered a generation and never was a member")
    return wrong


def wrongly_sent(messages: Sequence[FromWorker]) -> list[str]:
    """Returns what is wrong with the messages of a worker, in sentences."""
    wrong, ready, entered = [], set[int](), -1
    for index, message in enumerate(messages):
        if isinstance(message, Ready):
            if message.generation in ready:
                wrong.append("it was ready twice for one generation")
            ready.add(message.generation)
        elif isinstance(message, Entered):
            if message.generation <= entered or message.generation not in ready:
                wrong.append("it entered an older generation, or one it was not ready for")
            entered = message.generation
        elif isinstance(message, WorkerLeft | Finished) and index < len(messages) - 1:
            wrong.append("it sent a message after it left")
    return wrong
