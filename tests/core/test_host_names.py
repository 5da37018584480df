"""Node lists of Slurm: every form that `scontrol show hostnames` reads, and damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.core.host_list import host_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[01-03,07],gpu5", ["n01", "n02", "n03", "n07", "gpu5"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("r[1-2]n[3-4]-ib", ["r1n3-ib", "r1n4-ib", "r2n3-ib", "r2n4-ib"]),
        ("a100-[00,02]", ["a100-00", "a100-02"]),
        ("n1, n2", ["n1", "n2"]),
        ("", []),
        ("None assigned", []),
        ("(null)", []),
    ],
)
def test_a_list_names_its_nodes_in_order(text: str, names: list[str]) -> None:
    assert list(host_names(text)) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[1-2", "n[[1]]", "n[a-b]", "n[3-1]", "n1,,n2", "n[1,]", "n[0-99999]"]
)
def test_a_damaged_list_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(InputError, match="node list"):
        host_names(text)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20, unique=True))
def test_a_compressed_list_is_its_nodes(numbers: list[int]) -> None:
    text = f"node[{','.join(f'{n:02d}' for n in numbers)}]"
    assert list(host_names(text)) == [f"node{n:02d}" for n in numbers]
