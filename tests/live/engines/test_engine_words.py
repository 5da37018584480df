"""What is said after `--engine` and cannot be is refused in words of that option."""

import pytest

from dovetail.core.errors import InputError
from dovetail.live.engines.engine_spec import EngineSpec


@pytest.mark.parametrize(
    "text", ["emulated:4", "emulated:4x", "emulated:0x4", "emulated:4x8:t4+2", "emulated:x"]
)
def test_a_shape_that_is_none_is_named_with_its_option(text: str) -> None:
    with pytest.raises(InputError) as refused:
        EngineSpec.parse(text)
    assert str(refused.value).startswith(f"--engine: '{text}': ")
    assert "as in" in refused.value.mend
