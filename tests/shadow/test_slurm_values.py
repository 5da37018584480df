"""Values of Slurm's JSON, in the forms of 22.05 and of 23.02 and later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.shadow.slurm_values import gres_gpus, hosts, moment, number, tres_gpus, words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5.0),
        (None, None),
        ({"set": True, "infinite": False, "number": 30}, 30.0),
        ({"set": True, "infinite": True, "number": 0}, float("inf")),
        ({"set": False, "infinite": False, "number": 0}, None),
        (0xFFFFFFFE, None),
        (0xFFFFFFFF, float("inf")),
        (True, None),
        ("30", None),
    ],
)
def test_a_number_is_plain_or_wrapped(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_a_time_of_zero_is_no_time() -> None:
    assert moment(0) is None
    assert moment(10**15) is None
    assert moment({"set": True, "infinite": False, "number": 1795333762}) == 1795333762.0


@pytest.mark.parametrize("value", ["RUNNING", ["RUNNING"], "running"])
def test_a_state_is_a_text_or_a_list(value: object) -> None:
    assert words(value) == {"RUNNING"}


def test_a_state_loses_the_signs_that_sinfo_adds() -> None:
    assert words("idle*") == {"IDLE"}
    assert words(["IDLE", "DRAIN"]) == {"IDLE", "DRAIN"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-10,12]", ("n08", "n09", "n10", "n12")),
        ("a[1-2],b3", ("a1", "a2", "b3")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
    ],
)
def test_a_host_list_is_expanded(text: str, names: tuple[str, ...]) -> None:
    assert hosts(text) == names


@given(st.lists(st.integers(0, 999), min_size=1, max_size=8, unique=True))
def test_a_host_list_of_single_numbers_keeps_them_in_order(numbers: list[int]) -> None:
    listed = ",".join(f"{n:03}" for n in numbers)
    assert hosts(f"gpu[{listed}]") == tuple(f"gpu{n:03}" for n in numbers)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("", {}),
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu", {"": 1}),
        ("gres:gpu:2", {"": 2}),
        ("gres/gpu:a100:2", {"a100": 2}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:4(S:0,1),gpu:v100:2,shard:8", {"a100": 4, "v100": 2}),
        ("gpu:a100:3(IDX:0-1,3)", {"a100": 3}),
        ("gpu:3090:8,gpu:2080ti:4", {"3090": 8, "2080ti": 4}),
        ("gpu:(null):0(IDX:N/A)", {}),
    ],
)
def test_gpus_are_read_from_gres(gres: str, gpus: dict[str, int]) -> None:
    found = {kind: count for kind, count in gres_gpus(gres).items() if count}
    assert found == gpus


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=4,mem=10G,node=1", {}),
        ("cpu=4,gres/gpu=2", {"": 2}),
        ("gres/gpu=4,gres/gpu:a100=4", {"a100": 4}),
        ("gres/gpu:a100=4", {"a100": 4}),
        ("gres/gpu=5,gres/gpu:a100=4", {"a100": 4, "": 1}),
    ],
)
def test_a_typed_gpu_counts_once_in_tres(tres: str, gpus: dict[str, int]) -> None:
    assert tres_gpus(tres) == gpus
