"""Properties are searched with fresh seeds by `make slow`: no test fixes its seed by itself."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

TESTS = Path(__file__).resolve().parents[1]


def test_no_property_fixes_its_own_seed() -> None:
    """A `derandomize` in a test would win over the profile, and the search would find nothing."""
    fixed = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "conftest.py" and path != Path(__file__)
        if "derandomize" in path.read_text(encoding="utf-8")
    ]
    assert fixed == []


def test_no_test_reaches_into_hypothesis() -> None:
    inside = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__) and "hypothesis.internal" in path.read_text(encoding="utf-8")
    ]
    assert inside == []


def drawn_under(profile: str) -> list[int]:
    """Returns what a property is asked about."""
    seen: list[int] = []

    @settings(settings.get_profile(profile), max_examples=30, database=None)
    @given(st.integers(0, 2**60))
    def draw(number: int) -> None:
        seen.append(number)

    draw()
    return seen


def test_one_run_draws_what_another_drew_unless_it_searches() -> None:
    assert drawn_under("dovetail") == drawn_under("dovetail")
    assert drawn_under("search") != drawn_under("search")
