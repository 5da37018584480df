"""What every test may use: the folder of real traces, where it is present."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# What a machine takes is no matter of a property: no time is judged.
settings.register_profile(
    "dovetail", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dovetail")
# Nor does it matter what other tests have loaded: examples would be drawn from its constants too.
providers._get_local_constants = lambda: providers._local_constants

# Who starts the tests in the background lets them, and all they start, ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Returns the folder that holds `traces/` and `data/`, or skips the test."""
    folder = Path(os.environ.get("DOVETAIL_DATA", ROOT.parent / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip(f"needs the public traces: set DOVETAIL_DATA (looked in {folder})")
    return folder
