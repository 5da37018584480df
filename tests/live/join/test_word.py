"""The join word and its file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.live.join.word import CLIENT, NAME, JoinWord, secret_of

WORD = JoinWord("10.0.0.1", 7077, "ab" * 32, "n1", "cd" * 32)


def test_a_word_is_read_as_it_was_written_and_by_its_owner_alone(tmp_path: Path) -> None:
    WORD.write(tmp_path / "n1")
    assert (tmp_path / "n1").stat().st_mode & 0o777 == 0o600
    assert JoinWord.read(tmp_path / "n1") == WORD
    assert WORD.text == f"10.0.0.1:7077#{'ab' * 32}#n1:{'cd' * 32}"


def test_a_word_that_others_may_read_is_refused(tmp_path: Path) -> None:
    WORD.write(tmp_path / "n1")
    (tmp_path / "n1").chmod(0o640)
    with pytest.raises(InputError, match="other users may read it"):
        JoinWord.read(tmp_path / "n1")


def test_an_address_of_ipv6_keeps_its_colons() -> None:
    word = JoinWord.parse(WORD.text.replace("10.0.0.1", "[fe80::1]"), "w")
    assert (word.host, word.port) == ("fe80::1", 7077)


@given(st.text(max_size=200))
def test_no_other_text_is_a_word_and_no_error_repeats_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        JoinWord.parse(text + "!", "w")
    assert len(text) < 8 or text not in str(error.value)


@pytest.mark.parametrize("cut", ["#", ":7077", "10.0.0.1", "n1"])
def test_a_part_may_not_be_missing(cut: str) -> None:
    with pytest.raises(InputError, match="no join word"):
        JoinWord.parse(WORD.text.replace(cut, "", 1), "w")


def test_every_name_has_a_secret_of_its_own() -> None:
    names = ["n1", "n2", "n11", CLIENT]
    assert len({secret_of(b"k" * 32, name) for name in names}) == len(names)
    assert secret_of(b"k" * 32, "n1") != secret_of(b"l" * 32, "n1")
    assert not NAME.fullmatch(CLIENT), "no node can have the name of clients"
