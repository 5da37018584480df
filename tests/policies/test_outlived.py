"""A job that outlives its forecast does not rank first for ever, whatever the policy."""

from dataclasses import replace

import numpy as np
import pytest

from builders import Row, play, play_scene, scene_of, trace_of
from dovetail.core.policy import parse_policy, registered
from dovetail.forecast.expected import Expected
from dovetail.forecast.forecasts import Known

ROWS = (Row(1, 6000.0), Row(1, 30.0, submit_s=650.0))
"""The second arrives when the first has outlived its forecast of 60 s by more than ten times."""
FORESEEN = Known(np.array([60.0, 40.0]))
NO_LENGTH_ORDER = {"gavel", "gandiva-deadline", "optimus", "themis"}
"""They share fairly, by deadlines or by the time gained: least left does not go first."""


def finishes(policy: str, *, expected: bool) -> list[float]:
    """Returns when both jobs end under a policy that is told distributions, or numbers."""
    scene = scene_of(trace_of(*ROWS), "1x1")
    told = Expected(FORESEEN, scene.trace.jobs) if expected else FORESEEN
    return play_scene(replace(scene, forecast=told), policy).finishes


def stopping() -> list[str]:
    """Returns the policies that know lengths and may stop jobs."""
    policies = {name: parse_policy(name) for name in registered()}
    texts = [
        name
        for name, policy in policies.items()
        if "length" in policy.knows and "preempt" in policy.powers
    ]
    return sorted({*texts, "gittins:size-estimates=true"} - NO_LENGTH_ORDER)


@pytest.mark.parametrize("policy", stopping())
def test_a_job_outlived_tenfold_gives_way_to_a_short_fresh_one(policy: str) -> None:
    outlived, fresh = finishes(policy, expected=True)
    assert fresh < outlived


@pytest.mark.parametrize("policy", ["srtf", "srsf", "srtf-e"])
def test_by_single_numbers_it_never_gives_way(policy: str) -> None:
    outlived, fresh = finishes(policy, expected=False)
    assert outlived < fresh


@pytest.mark.parametrize("policy", ["srtf", "gittins:size-estimates=true"])
def test_a_known_length_ranks_a_job_by_what_is_left(policy: str) -> None:
    rows = [Row(1, 100.0), Row(1, 60.0, submit_s=50.0), Row(1, 20.0, submit_s=51.0)]
    for forecast in ("known", "known,expected"):
        assert play(rows, policy, "1x1", forecast=forecast).finishes == [120.0, 180.0, 71.0]
