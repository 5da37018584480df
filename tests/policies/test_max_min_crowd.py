"""Max-Min with more jobs than GPUs: the short way gives what pouring over everybody gives."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, play
from dovetail.policies import max_min

JOBS = st.lists(
    st.builds(
        lambda gpus, length_s, submit_s, more, stoppable: Row(
            gpus,
            length_s,
            submit_s,
            elastic=True,
            min_gpus=1,
            max_gpus=gpus + more,
            preemptible=stoppable,
        ),
        st.integers(1, 3),
        st.sampled_from([5.0, 20.0, 60.0]),
        st.sampled_from([0.0, 1.0, 10.0, 15.0]),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=5,
    max_size=14,
)


@settings(max_examples=40)
@given(rows=JOBS)
def test_a_crowd_is_served_as_if_all_were_looked_at(rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: row.submit_s)
    short = play(rows, "max-min", "2x2")
    with patch.object(max_min, "_all_take_one", lambda view: False):
        long = play(rows, "max-min", "2x2")
    assert short.facts == long.facts


def test_a_rigid_job_among_a_crowd_still_counts_as_one() -> None:
    crowd = [Row(1, 10.0, elastic=True, max_gpus=2) for _ in range(4)]
    story = play([*crowd, Row(1, 10.0)], "max-min", "1x2")
    # Its request is within a fair share, so it is served before the elastic ones.
    assert story.finishes[4] == 10.0
