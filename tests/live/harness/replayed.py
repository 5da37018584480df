"""Plays a story, exports its log as `dovetail history --export` does, and replays it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness.scene import Scene
from harness.stage import folder_in_memory
from harness.story import Story, story

from dovetail.live.serving.scheduler import build_scheduler
from dovetail.live.store.queries import StoreReader
from dovetail.replaying.decisions import Replayed, replay
from dovetail.replaying.live_log import write_log

GIVEN = {
    "physics": "linear",
    "interference": "1.3",
    "placement": "prefer",
    "switching": "none",
}
"""The options by which a scene decides, in the words of `dovetail up`."""


class _Headed(StoreReader):
    """The store of a scene, which has no manifest of its own."""

    def __init__(self, path: Path, manifest: str) -> None:
        super().__init__(path)
        self._manifest = manifest

    def meta(self, name: str) -> str | None:
        return self._manifest if name == "manifest" else super().meta(name)


def replayed(tale: Story, policy: str = "") -> Replayed:
    """Returns what a replay of a story finds, under its own policy or another one.

    Raises InputError if the log cannot be replayed.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=folder_in_memory()) as folder:
        scene = Scene(tale, Path(folder) / "store.db")
        outcome = scene.play()
        assert not outcome.wrong, outcome.wrong
        mind = build_scheduler(tale.policy, scene.cluster, GIVEN, stated_s=lambda job: 0.0)
        log = Path(folder) / "events.jsonl"
        with _Headed(scene.path, mind.manifest_text("virtual")) as reader:
            write_log(reader, log)
        return replay(log, policy)


def unexplained(seeds: Iterable[int]) -> list[str]:
    """Returns a line for each story whose replay differs without an explanation."""
    found = []
    for seed in seeds:
        tale = story(seed)
        found += [f"story {seed} under {tale.policy}: {d}" for d in replayed(tale).unexplained[:1]]
    return found
