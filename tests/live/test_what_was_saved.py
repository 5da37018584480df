"""What a job that is killed is believed to have done: what it saved, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.scene import Scene
from harness.story import Fault, Story, Submission
from harness.trainers import SAVES_S

from dovetail.live.store.queries import StoreReader

LONG_S = 3.0 * SAVES_S


@pytest.mark.parametrize(("killed_s", "saved_s"), [(0.8 * SAVES_S, 0.0), (1.8 * SAVES_S, SAVES_S)])
def test_a_job_whose_only_worker_is_killed_goes_on_from_what_it_saved(
    tmp_path: Path, killed_s: float, saved_s: float
) -> None:
    story = Story(
        seed=1,
        policy="srtf",
        submissions=(Submission(0.0, "elastic", 1, 1, 1, LONG_S),),
        faults=(Fault(killed_s, "worker killed"),),
    )
    assert not Scene(story, tmp_path / "store.db").play().wrong
    with StoreReader(tmp_path / "store.db") as reader:
        facts = [fact for _, fact in reader.facts(1)]
    (stopped,) = (i for i, fact in enumerate(facts) if fact["e"] == "stopped")
    assert facts[stopped]["why"] == "failed"
    assert facts[stopped]["done_s"] == pytest.approx(saved_s, abs=0.5)
    # And so it is: no report had to mend what was believed when it trained again.
    again = [fact["done_s"] for fact in facts[stopped:] if fact["e"] == "measured"]
    assert again == [facts[stopped]["done_s"]]
