from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_scene import a_model, assumed, curve, stages

from dovetail.core.errors import InputError
from dovetail.physics.batches.efficiency import Efficiency
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.models import shipped_sets
from dovetail.physics.zoo.profile import FitError, Startup
from dovetail.physics.zoo.profile_file import (
    ProfileSet,
    dump_profiles,
    load_profiles,
    parse_profiles,
)

FULL = ProfileSet(
    family="scene",
    title='A "quoted" title',
    licence="ours",
    sources=(("made", "made up"),),
    profiles=(
        a_model(),
        a_model(
            name="full",
            network=assumed(Network(RingLink(0, 9e9), RingLink(0, 3e9), RingLink(0, 1e9))),
            curve=curve(0.1, 0.06),
            stages=stages(),
            startup=assumed(Startup((1, 2), (3.0, 4.0))),
            fit_error=assumed(FitError(7, 0.1, 0.2, 0.3)),
            efficiency=assumed(Efficiency(8, 512, 2, 64, (100.0, 250.5), (3.0, 4e6))),
        ),
    ),
    pairs=(PairRatio("plain", 64, "full", 32, 1.25, 1.5),),
)
TEXT = dump_profiles(FULL)


def test_a_set_is_read_back_as_it_was_written() -> None:
    assert parse_profiles(TEXT, where="scene") == FULL


def test_the_shipped_sets_are_read_back_as_they_were_written() -> None:
    for one in shipped_sets():
        assert parse_profiles(dump_profiles(one), where=one.family) == one


def test_a_source_may_be_a_sentence_of_its_own() -> None:
    text = TEXT.replace('source = "made"', 'source = "seen in a dream"')

    read = parse_profiles(text, where="scene")

    assert read.profiles[0].batch.source == "seen in a dream"


@pytest.mark.parametrize(
    ("wrong", "right", "complaint"),
    [
        ("format = 1", "format = 2", "format is 2"),
        ("format = 1", "format = ", "is not TOML"),
        ('family = "scene"', "family = 3", "family is missing"),
        ("a_s = 0.01, ", "", "model plain, compute.v100: a_s is missing"),
        ("a_s = 0.01", "a_s = nan", "a_s is not a number that can be"),
        (
            "max_gpus = { value = 16",
            "max_gpus = { value = inf",
            "value is not a number that can be",
        ),
        ("max_gpus = { value = 16", "max_gpus = { value = 1.5", "must be a whole number"),
        ("max_gpus = { value = 16", "max_gpus = { value = 0", "at least 1"),
        ("max_per_gpu = 64", "max_per_gpu = 0", "at least 1"),
        ("a_s = 0.01, b_s_per_sample = 0.001", "a_s = 0, b_s_per_sample = 0", "must take time"),
        ("a_s = 0.01", "a_s = -0.01", "not negative"),
        ("overlap = { value = 1.0", "overlap = { value = 0.5", "at least 1"),
        ('provenance = "assumed"', 'provenance = "guessed"', "'guessed' is unknown"),
        ('source = "made"', 'source = ""', "source is missing"),
        ("max_gpus = {", "most_gpus = {", "field max_gpus is missing"),
        ('name = "full"', 'name = "plain"', "the same name"),
        ("gpus = [1, 2], iteration_s", "gpus = [2, 1], iteration_s", "start at 1 and grow"),
        ("network_s = [0.0, 0.2]", "network_s = [0.0]", "differ in length"),
        ("second_ratio = 1.5", "second_ratio = 0", "must be positive"),
        ("overlap = {", "overlap = 1.0 #", "must be a table"),
    ],
)
def test_a_broken_file_is_refused_with_its_field(wrong: str, right: str, complaint: str) -> None:
    assert wrong in TEXT

    with pytest.raises(InputError, match=complaint) as caught:
        parse_profiles(TEXT.replace(wrong, right), where="my.toml")

    assert str(caught.value).startswith("my.toml")


def test_a_missing_or_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_profiles(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load_profiles(tmp_path / "bytes.toml")


def test_every_field_of_the_zoo_says_where_it_comes_from() -> None:
    from dovetail.physics.zoo.profile_file import profile_fields

    for one in shipped_sets():
        for profile in one.profiles:
            fields = profile_fields(profile)
            assert len(fields) >= 10
            assert all(len(entry.source) > 10 for entry in fields.values()), profile.full_name


@given(
    start=st.integers(0, len(TEXT) - 1),
    length=st.integers(0, 40),
    put=st.sampled_from(
        ["", "x", "0", "-1", "1e400", "inf", '"', "[]", "{ }", "\n", "\x00", "true"]
    ),
)
@settings(max_examples=300)
def test_a_damaged_file_is_read_or_refused_but_never_breaks(
    start: int, length: int, put: str
) -> None:
    damaged = TEXT[:start] + put + TEXT[start + length :]

    try:
        read = parse_profiles(damaged, where="my.toml")
    except InputError as refused:
        assert str(refused).startswith("my.toml")  # noqa: PT017
    else:
        assert isinstance(read, ProfileSet)
