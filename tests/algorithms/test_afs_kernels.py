"""AFS shares: worked examples, what the definition promises, and the compiled twin's equality."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms import afs
from papers.afs import plain_shares

BOTH = pytest.mark.parametrize("shares", [plain_shares, afs], ids=["plain", "compiled"])

X = [0, 1, 1.7, 2.2, 2.5]
Y = [0, 1, 1.9, 2.7, 3.4]
Z = [0, 1, 1.5, 1.8, 2.0]
LINEAR = [0, 1, 2, 3, 4]


@BOTH
@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (1, [1, 0, 0]),
        (2, [1, 1, 0]),
        (3, [1, 1, 1]),
        (4, [2, 1, 1]),
        (5, [2, 2, 1]),
        (6, [2, 3, 1]),
        (7, [2, 3, 2]),
        (8, [3, 3, 2]),
    ],
)
def test_the_worked_example_gpu_by_gpu(shares: Any, gpus: int, expected: list[int]) -> None:
    given_out = shares.shares_by_length([6, 12, 40], [X, Y, Z], [0, 1, 2], [4, 4, 4], gpus)
    assert given_out.tolist() == expected


@BOTH
def test_everyone_has_one_gpu_before_a_linear_job_has_two(shares: Any) -> None:
    crowd = shares.shares_by_length([1, 50, 60], [LINEAR], [0, 0, 0], [4, 4, 4], 3)
    assert crowd.tolist() == [1, 1, 1]


@BOTH
def test_the_shortest_run_when_there_are_more_jobs_than_gpus(shares: Any) -> None:
    crowd = shares.shares_by_length([9, 2, 5, 2], [LINEAR], [0] * 4, [4] * 4, 2)
    assert crowd.tolist() == [0, 1, 0, 1]


@BOTH
def test_gpus_that_help_nobody_stay_idle(shares: Any) -> None:
    flat_after_two = [0, 1, 1.5, 1.5, 3]
    crowd = shares.shares_by_length([5, 5], [flat_after_two], [0, 0], [4, 4], 8)
    assert crowd.tolist() == [2, 2]
    assert shares.shares_by_length([5], [LINEAR], [0], [3], 8).tolist() == [3]


@BOTH
def test_a_tie_leaves_the_gpu_with_the_shorter_job(shares: Any) -> None:
    longer, shorter = [0, 2, 4, 4], [0, 2, 3, 3]  # gain 2/4 equals loss 1/2
    assert shares.shares_by_length([9, 1], [longer, shorter], [0, 1], [2, 2], 3).tolist() == [1, 2]
    above = [0, 2, 4.0001, 4.0001]
    assert shares.shares_by_length([9, 1], [above, shorter], [0, 1], [2, 2], 3).tolist() == [2, 1]
    hair = [0, 2, 4 * (1 + 1e-12), 9]
    assert shares.shares_by_length([9, 1], [hair, shorter], [0, 1], [2, 2], 3).tolist() == [1, 2]


@BOTH
def test_without_lengths_the_first_stays_on_top_unless_beaten(shares: Any) -> None:
    crowd = shares.shares_without_length([X, Y, Z], [0, 1, 2], [4, 4, 4], 4)
    assert crowd.tolist() == [2, 1, 1]
    steep = shares.shares_without_length([[0, 1, 1.5], [0, 1, 10]], [0, 1], [2, 2], 3)
    assert steep.tolist() == [1, 2]  # the second gains 9/10, the first would gain 1/2


@BOTH
def test_the_order_of_three_jobs_may_run_in_a_circle(shares: Any) -> None:
    """Mixed chains are not transitive: who is on top depends on the order of the scan (FIX-7)."""
    tables = {"short": [0, 1, 1.3], "middle": [0, 1, 1.4], "long": [0, 1, 1.5]}
    left_s = {"short": 1.0, "middle": 2.0, "long": 3.0}

    def top(*names: str) -> str:
        given_out = shares.shares_by_length(
            [left_s[n] for n in names],
            [tables[n] for n in names],
            range(len(names)),
            [2] * len(names),
            len(names) + 1,
        )
        return names[int(given_out.argmax())]

    assert top("short", "middle") == "short"  # 0.4/1.4 is not above 0.3
    assert top("middle", "long") == "middle"  # 0.5/1.5 is not above 0.4
    assert top("long", "short") == "long"  # 0.5/1.5 is above 0.3
    assert top("short", "middle", "long") == "long"
    assert top("middle", "long", "short") == "short"
    assert top("long", "short", "middle") == "middle"


@BOTH
def test_a_least_share_comes_whole_or_not_at_all(shares: Any) -> None:
    rates = [[0, 1, 2, 3, 4, 5, 6]]
    crowd = shares.shares_by_length([8, 6, 9], rates, [0] * 3, [4, 6, 6], 5, low=[4, 3, 1])
    assert crowd.tolist() == [4, 0, 1]  # lengths 2, 2, 9 on the least share; one GPU is left of 5


@BOTH
def test_a_rigid_job_has_what_it_asked_for(shares: Any) -> None:
    rates = [[0, 1, 2, 3, 4, 5, 6]]
    crowd = shares.shares_by_length([8, 60], rates, [0, 0], [4, 6], 9, low=[4, 1])
    assert crowd.tolist() == [4, 5]


@BOTH
def test_no_jobs_and_no_gpus(shares: Any) -> None:
    assert shares.shares_by_length([], [[0.0]], [], [], 5).tolist() == []
    assert shares.shares_by_length([3], [LINEAR], [0], [4], 0).tolist() == [0]


@BOTH
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"gpus": -1}, "no fewer than 0"),
        ({"left_s": [-1.0, 1.0]}, "none negative"),
        ({"left_s": [math.nan, 1.0]}, "none negative"),
        ({"left_s": [1.0]}, "every job"),
        ({"cap": [4, 5]}, "reach the greatest share"),
        ({"low": [0, 1]}, "least"),
        ({"low": [1, 5]}, "least"),
        ({"kind": [0, 1]}, "row for the kind"),
        ({"rates": [0.0, 1.0]}, "table"),
    ],
)
def test_claims_that_make_no_sense_are_refused(
    shares: Any, change: dict[str, object], complaint: str
) -> None:
    asked: dict[str, object] = {
        "left_s": [1.0, 2.0], "rates": [LINEAR], "kind": [0, 0], "cap": [4, 4], "gpus": 4
    }  # fmt: skip
    with pytest.raises(ValueError, match=complaint):
        shares.shares_by_length(**(asked | change))


STEPS = st.sampled_from([0.0, 0.0, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0, 2.0, 3.7])


@st.composite
def crowds(draw: st.DrawFn) -> dict[str, Any]:
    """Draws jobs of few kinds: flat, saturating, jagged and superlinear tables, many ties."""
    kinds, reach = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    steps = draw(
        st.lists(st.lists(STEPS, min_size=reach, max_size=reach), min_size=kinds, max_size=kinds)
    )
    jobs = draw(st.integers(1, 12))
    lengths = st.sampled_from([0.0, 1.0, 2.0, 2.0, 3.5, 8.0, math.inf]) | st.floats(0, 100)
    ranges = [sorted(draw(st.tuples(*2 * [st.integers(1, reach)]))) for _ in range(jobs)]
    elastic = draw(st.booleans())
    return {
        "left_s": [draw(lengths) for _ in range(jobs)],
        "rates": np.concatenate((np.zeros((kinds, 1)), np.cumsum(steps, axis=1)), axis=1),
        "kind": [draw(st.integers(0, kinds - 1)) for _ in range(jobs)],
        "cap": [most for _, most in ranges],
        "low": None if elastic else [least for least, _ in ranges],
        "gpus": draw(st.integers(0, 5 * jobs)),
    }


@settings(max_examples=400, deadline=None)
@given(crowds())
def test_compiled_shares_are_the_plain_ones(crowd: dict[str, Any]) -> None:
    plain = plain_shares.shares_by_length(**crowd)
    assert afs.shares_by_length(**crowd).tolist() == plain.tolist()
    keeps_promises(crowd, plain)
    crowd.pop("left_s")
    plain = plain_shares.shares_without_length(**crowd)
    assert afs.shares_without_length(**crowd).tolist() == plain.tolist()
    keeps_promises(crowd, plain)


def keeps_promises(crowd: dict[str, Any], shares: np.ndarray) -> None:
    """Checks range and pool, and that GPUs stay idle only where no running job gains."""
    low = np.ones_like(shares) if crowd["low"] is None else np.array(crowd["low"])
    assert ((shares == 0) | ((shares >= low) & (shares <= crowd["cap"]))).all()
    idle = crowd["gpus"] - shares.sum()
    assert idle >= 0
    more = np.minimum(shares + 1, crowd["cap"])
    speeds = crowd["rates"][crowd["kind"]]
    every = np.arange(shares.size)
    assert not (idle and ((speeds[every, more] > speeds[every, shares]) & (shares > 0)).any())
    assert not ((shares == 0) & (low <= idle)).any()


@pytest.mark.parametrize("seed", range(24))
def test_compiled_shares_are_the_plain_ones_over_many_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, reach = int(rng.integers(33, 150)), 12
    kinds = int(rng.choice([2, 9, jobs]))
    jagged = rng.choice([0.0, 0.3, 0.5, 1.0, 1.4], size=(kinds, reach))
    steps = rng.uniform(0, 1, (kinds, reach)) if seed % 2 else jagged
    crowd: dict[str, Any] = {
        "left_s": np.sort(rng.lognormal(3, 2, jobs))[:: int(rng.choice([1, -1]))],
        "rates": np.concatenate((np.zeros((kinds, 1)), np.cumsum(steps, axis=1)), axis=1),
        "kind": rng.integers(0, kinds, jobs),
        "cap": rng.integers(1, reach + 1, jobs),
        "gpus": jobs + int(rng.integers(0, 150)),
    }
    if seed % 3:
        rng.shuffle(crowd["left_s"])
    assert (afs.shares_by_length(**crowd) == plain_shares.shares_by_length(**crowd)).all()
    crowd.pop("left_s")
    assert (afs.shares_without_length(**crowd) == plain_shares.shares_without_length(**crowd)).all()


def test_ten_thousand_gpus_take_milliseconds() -> None:
    rng = np.random.default_rng(5)
    counts = np.arange(65)
    crowd: dict[str, Any] = {
        "left_s": rng.lognormal(8, 2, 2_000),
        "rates": counts / (1 + rng.uniform(0.001, 0.2, (2_000, 1)) * np.maximum(counts - 1, 0)),
        "kind": np.arange(2_000),
        "cap": rng.integers(1, 65, 2_000),
        "gpus": 10_000,
    }
    shares = afs.shares_by_length(**crowd)
    assert int(shares.sum()) == 10_000
    assert int(shares.min()) == 1


def test_where_no_cache_can_be_written_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import numba

    from dovetail.algorithms.compiled import compiled

    really = numba.njit

    def njit(function: Any, *, cache: bool, nogil: bool) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return really(function, nogil=nogil)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled(lambda n: n + 1)(2) == 3
