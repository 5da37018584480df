"""What `dovetail up` refuses before it makes anything."""

from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.client.client import Client
from dovetail.live.serving.serve import check
from dovetail.live.serving.up_request import UpRequest


@pytest.mark.parametrize("engine", ["local:1", "emulated:2x2"])
def test_a_home_too_long_for_a_socket_is_refused_before_it_is_made(
    tmp_path: Path, engine: str
) -> None:
    home = tmp_path / ("x" * 110)
    with pytest.raises(InputError, match="use a shorter --home"):
        check(UpRequest(home, "fifo", engine, {}))
    assert not home.exists()
    with pytest.raises(InputError, match="use a shorter --home"):
        Client(home).ping()
