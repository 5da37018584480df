"""Whole runs of Gandiva and Lucid: as if every waiting job asked every host for itself."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from builders import play_scene
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.view import View
from dovetail.mechanisms.sharing import gpu_groups as gangs
from dovetail.mechanisms.sharing.candidates import join
from dovetail.mechanisms.sharing.named_gpus import placement_on
from dovetail.mechanisms.sharing.stars import StarSeats
from dovetail.policies.lucid import ScoreRule
from dovetail.sim.scene import Scene
from sharing_scenes import scenes


def plain_pack(
    view: View, draft: Draft, waiting: Iterator[int], bad: frozenset[gangs.Kinds]
) -> set[int]:
    hosts = gangs._hosts(view, draft)
    taken: set[int] = set()
    for guest in waiting:
        alike = hosts.get(int(view.jobs.gpus[guest]), {})
        for one in sorted(alike) if view.jobs.shareable[guest] else ():
            host = alike[one][-1]
            if gangs._may_join(view, draft, guest, host, one, bad) and join(draft, guest, host):
                taken.add(alike[one].pop())
                if not alike[one]:
                    del alike[one]
                break
    return taken


def plain_scores(rule: ScoreRule, view: View) -> Callable[[int], int]:
    def score(job: int) -> int:
        memory = min(group.gpu_memory_bytes for group in view.cluster.groups)
        held = view.physics.memory.footprint_bytes(job, 1) / memory
        asked = max(view.physics.sharing.utilization(job), held)
        return 0 if asked <= rule.tiny else 1 if asked <= rule.jumbo else 2

    return score


def plain_candidates(
    seats: StarSeats, guest: int, welcome: Callable[[int], bool]
) -> Iterator[Placement]:
    shape, placed = seats._view.shape(guest), seats._draft.placed
    hosts = [h for h in seats._willing() if welcome(h) and seats._may_use(shape, h)]
    for host in hosts:
        if placed[host].gpus == shape.gpus:
            yield Placement(placed[host].spans, placed[host].gpu_ids)
    if not seats._unequal:
        return
    for host in hosts:
        inside = placed[host].gpus > shape.gpus and seats._inside(host, shape.gpus)
        if inside:
            yield placement_on(inside)
    smaller = [h for h in hosts if placed[h].gpus < shape.gpus]
    over = seats._over(smaller, shape)
    if over:
        yield placement_on(over)


@pytest.mark.parametrize(
    "policy",
    [
        "gandiva:slice=5",
        "gandiva:slice=20,unequal=true",
        "lucid",
        "lucid:score-limit=4,unequal=true",
    ],
)
@settings(max_examples=25)
@given(scene=scenes())
def test_it_packs_as_the_plain_one(policy: str, scene: Scene) -> None:
    fast = play_scene(scene, policy)
    with (
        patch("dovetail.policies.gandiva.pack", plain_pack),
        patch.object(ScoreRule, "scores", plain_scores),
        patch.object(StarSeats, "_candidates", plain_candidates),
    ):
        slow = play_scene(scene, policy)
    assert fast.facts == slow.facts
