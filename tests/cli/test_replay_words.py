"""How `dovetail replay` says in what two placements differ."""

from dataclasses import fields

from dovetail.cli.replay import ASPECTS, _sides
from dovetail.control.replay import Difference
from dovetail.core.placement import Placement


def test_two_placements_that_differ_never_read_the_same() -> None:
    plain = Placement(((1, 4),))
    assert _sides(Difference(0.0, 6, plain, None)) == ("4 on node 1", "not running")
    other = Placement(((1, 4),), ((0, 1, 2, 3),), batch_size=64)
    assert _sides(Difference(0.0, 6, plain, other)) == (
        "4 on node 1 (GPUs none, batch size none)",
        "4 on node 1 (GPUs ((0, 1, 2, 3),), batch size 64)",
    )


def test_every_aspect_of_a_placement_has_a_word() -> None:
    assert {f.name for f in fields(Placement) if f.compare} == {"spans", *ASPECTS}
