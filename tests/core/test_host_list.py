"""Lists of hosts as Slurm writes them: the reader of traces finds again what was written."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.core.host_list import counted, host_list, host_names

NAMES = st.lists(
    st.builds(
        lambda stem, number, width: stem + (str(number).zfill(width) if number >= 0 else ""),
        st.sampled_from(["n", "gpu-a", "10.0.0.", "r1c"]),
        st.integers(-1, 120),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["n1", "n2", "n3", "n07"], "n[1-3,07]"),
        (["n09", "n10", "n99", "n100"], "n[09-10,99-100]"),
        (["n9", "n10"], "n[9-10]"),
        (["n3", "n1"], "n[3,1]"),
        (["127.0.0.2", "127.0.0.3", "127.0.0.4"], "127.0.0.[2-4]"),
        (["head", "head", "a1"], "head,head,a1"),
        ([], ""),
    ],
)
def test_names_that_follow_each_other_are_written_together(names: list[str], written: str) -> None:
    assert host_list(names) == written


@given(NAMES)
@example(["n099", "n100"])
@example(["n0", "n00"])
def test_a_written_list_has_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert list(host_names(host_list(names))) == names


def test_tasks_of_nodes_are_counted_in_runs() -> None:
    assert counted([2, 2, 2, 1]) == "2(x3),1"
    assert counted([4]) == "4" and counted([]) == ""
