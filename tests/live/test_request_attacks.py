"""Requests of the right form with any values: each is answered or refused, none is our error."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from cluster_by_hand import ByHand
from dovetail.core.errors import DovetailError
from dovetail.live.server.messages.changes import Submit
from dovetail.live.server.protocol import line_of_question, line_of_reply
from dovetail.live.server.requests import Question, question_of
from dovetail.wire.codec import WireError, parse_object
from random_messages import random_message


@pytest.fixture
def cluster() -> Iterator[ByHand]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    by_hand = ByHand(folder)
    yield by_hand
    by_hand.close()
    shutil.rmtree(folder)


def ask_anything(cluster: ByHand, seed: int, times: int) -> int:
    """Asks random questions; returns how many were read."""
    rng, read = Random(seed), 0
    # Jobs that are submitted have tests of their own.
    kinds = [cls for cls in get_args(Question) if cls is not Submit]
    for _ in range(times):
        asked = random_message(rng, rng.choice(kinds), some=0.3)
        verb = getattr(asked, "verb", "cancel")
        try:
            question = question_of(parse_object(line_of_question(verb, asked)))
        except WireError:
            continue
        read += 1
        try:
            for number, reply in enumerate(cluster.desk.answer(question, "ann")):
                line_of_reply(reply)
                if number > 3:
                    break  # It would follow a log for ever.
        except DovetailError:
            continue
    return read


def test_random_requests_are_answered_or_refused(cluster: ByHand) -> None:
    assert ask_anything(cluster, 1, 600) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_random_requests_are_answered_or_refused(cluster: ByHand, seed: int) -> None:
    assert ask_anything(cluster, seed, 10_000) > 1000
