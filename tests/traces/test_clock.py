"""Time zones: what a name that is none gets."""

import pytest

from dovetail.core.errors import InputError
from dovetail.traces.clock import check_zone


def test_an_unknown_time_zone_names_the_nearest_and_not_hundreds() -> None:
    with pytest.raises(InputError) as refused:
        check_zone("Mars/Olympus_Mons")
    assert "the nearest of" in str(refused.value) and len(str(refused.value)) < 200
