"""The public suite over every registered policy, and over one that breaks it."""

from pathlib import Path

import pytest
from test_policy_contract import SHORT

import dovetail.policies
from dovetail.conformance import PolicyConformance
from dovetail.core.policy import registered

assert dovetail.policies
IDLE = {"no-op"}

for _name in registered():
    if _name not in IDLE:
        _title = "Test" + "".join(part.title() for part in _name.split("-"))
        globals()[_title] = type(_title, (PolicyConformance,), {"policy": SHORT.get(_name, _name)})

FICKLE = '''
"""A policy that keeps state where it must not."""
from dataclasses import dataclass
from typing import ClassVar
from dovetail.core.passes import fill
from dovetail.core.policy import Decision, register
from dovetail.core.order import Order

CALLS = []

@register("fickle")
@dataclass(frozen=True, slots=True)
class Fickle:
    knows: ClassVar = frozenset()
    powers: ClassVar = frozenset()
    order: ClassVar = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar = None

    def decide(self, view, memory):
        CALLS.append(view.now)
        if len(CALLS) % 2:
            return Decision(None)
        return Decision(fill(view, "skip")[0])
'''


def test_the_suite_finds_a_policy_with_hidden_state(tmp_path: Path) -> None:
    path = tmp_path / "fickle.py"
    path.write_text(FICKLE)
    with pytest.raises(AssertionError, match="decides differently when asked twice"):
        PolicyConformance.check(policy=f"{path}:Fickle")
