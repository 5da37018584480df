"""Seeds and spans of time that no policy can use are refused when it is named."""

import pytest

from builders import Row, play
from dovetail.core.errors import InputError
from dovetail.core.parameters import MOST_SEED
from dovetail.core.policy import parse_policy

SEEDED = ("pollux", "themis", "antman", "afs-p:tie=random")


def with_seed(policy: str, seed: int) -> str:
    return f"{policy}{',' if ':' in policy else ':'}seed={seed}"


@pytest.mark.parametrize("policy", SEEDED)
@pytest.mark.parametrize("seed", [-1, -3, MOST_SEED + 1, 99999999999999999999999])
def test_a_seed_that_no_generator_takes_is_refused(policy: str, seed: int) -> None:
    with pytest.raises(InputError, match=f"seed is a whole .* 0 to 4294967295, not {seed}"):
        parse_policy(with_seed(policy, seed))


@pytest.mark.parametrize("policy", SEEDED)
def test_the_largest_seed_plays(policy: str) -> None:
    rows = [Row(1, 70, elastic=True, min_gpus=1, max_gpus=2), Row(1, 90, submit_s=1)]
    quick = ",generations=2,population=4" if policy == "pollux" else ""
    assert sorted(play(rows, with_seed(policy, MOST_SEED) + quick, "1x2").ended()) == [0, 1]


@pytest.mark.parametrize(
    "text",
    ["pollux:interval=1e-9", "optimus:interval=0.5", "themis:lease=0.1", "afs-s:unit-s=1e-6"],
)
def test_looking_again_all_the_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is a number of seconds from 1 on, not"):
        parse_policy(text)
