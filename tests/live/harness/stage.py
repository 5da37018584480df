"""Plays stories one after the other, and cuts a failing one down to what it needs to fail."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.scene import Outcome, Scene
from harness.story import Story

TRIES = 150
"""Stories played at most to find a shorter one that fails."""


@dataclass(frozen=True)
class Failure:
    """A story that broke a rule, as short as was found, and its outcome."""

    story: Story
    outcome: Outcome

    def told(self) -> str:
        """Returns the whole report."""
        return "\n".join(
            [
                "",
                *self.outcome.wrong[:8],
                "",
                "the shortest story found that breaks a rule:",
                self.story.told(),
                "",
                "what happened:",
                *self.outcome.tale[-120:],
                "",
                f"again: python tests/live/harness/again.py {self.story.seed}",
            ]
        )


def scratch_folder() -> str | None:
    """Returns a folder in memory where there is one: a commit need not wait for a disk here."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def play(story: Story) -> Outcome:
    """Plays one story on a store of its own."""
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=scratch_folder()) as folder:
        return Scene(story, Path(folder) / "store.db").play()


def first_failure(stories: Iterable[Story]) -> Failure | None:
    """Returns the first story that breaks a rule, cut down; None if none does."""
    for story in stories:
        outcome = play(story)
        if outcome.wrong:
            return cut_down(story, outcome)
    return None


def cut_down(story: Story, outcome: Outcome) -> Failure:
    """Returns a shorter story that breaks a rule too, found by leaving things out."""
    tries, shorter = 0, True
    while shorter:
        shorter = False
        for smaller in story.smaller():
            tries += 1
            if tries > TRIES:
                return Failure(story, outcome)
            found = play(smaller)
            if found.wrong:
                story, outcome, shorter = smaller, found, True
                break
    return Failure(story, outcome)
