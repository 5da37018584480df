"""SIGTERM before the end of an allocation makes jobs save; a second one ends the controller."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

from dovetail.live.serving.save_on_term import saving_on_term
from patience import until


def test_the_first_signal_asks_jobs_to_save_and_the_second_ends() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    ended: list[int] = []
    intake: Any = SimpleNamespace(request=lambda verb, **words: asked.append((verb, words)))
    before = signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    try:
        with saving_on_term(intake):
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: asked)
            assert [(verb, words["argument"]) for verb, words in asked] == [("down", "save")]
            assert asked[0][1]["key"], "a key of its own: an earlier controller had others"
            assert not ended
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: ended)
        assert len(asked) == 1
        with saving_on_term(intake):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: len(ended) == 2)
    finally:
        signal.signal(signal.SIGTERM, before)
