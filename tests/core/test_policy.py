"""Policies by name: how parameters are read, spelled and refused."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import dovetail.policies  # registers the policies
from builders import Row, play
from dovetail.core.errors import InputError
from dovetail.core.order import Order
from dovetail.core.policy import (
    Decision,
    Policy,
    _registry,
    name_of,
    parse_policy,
    register,
    registered,
    spell,
)
from dovetail.core.view import View

assert dovetail.policies


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("fifo", "fifo:bypass=strict"),
        ("fifo:bypass=skip", "fifo:bypass=skip"),
        (
            "tiresias:thresholds=3250/7200,inside=list",
            "tiresias:thresholds=3250/7200,inside=list,bypass=skip",
        ),
        ("tiresias:thresholds=0.1", "tiresias:thresholds=0.1,inside=submission,bypass=skip"),
        (
            "gittins:delta=1e-07,samples-min=5",
            "gittins:delta=1e-07,step=2,samples-min=5,bypass=skip,size-estimates=false",
        ),
        (
            "gittins:delta=1234567.125",
            "gittins:delta=1234567.125,step=2,samples-min=30,bypass=skip,size-estimates=false",
        ),
        ("backfill", "backfill"),
    ],
)
def test_a_policy_is_read_and_spelled_with_every_parameter(text: str, spelled: str) -> None:
    policy = parse_policy(text)
    assert spell(policy) == spelled
    assert parse_policy(spelled) == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fifoo", r"no such policy \(did you mean 'fifo'\?\)"),
        ("", "no such policy"),
        ("fifo:bypas=skip", r"no parameter 'bypas' \(did you mean 'bypass'\?\)"),
        ("fifo:skip", "no parameter 'skip'"),
        ("fifo:bypass", r"parameter 'bypass' has no value \(bypass=...\)"),
        ("sjf-bsbf:order=benefit", r"\(did you mean 'order-hosts'\?\)"),
        ("backfill:x=1", "it has no parameters"),
        ("ticked:inner=tiresias,inside=list", "those of inner are parted by ;"),
        ("fifo:bypass=maybe", "strict or skip, not 'maybe'"),
        ("gittins:delta=much", "wants a number, not 'much'"),
        ("gittins:samples-min=1.5", "wants a whole number"),
        ("gittins:delta=-1", "delta must be 0 or more"),
        ("gittins:delta=nan", ""),
        ("gittins:step=nan", ""),
        ("gittins:step=1", "step above 1"),
        ("tiresias:thresholds=7200/3250", "positive and increasing"),
        ("tiresias:thresholds=nan", ""),
        ("tiresias:thresholds=0", "positive and increasing"),
        ("tiresias:inside=heap", "submission or list"),
        ("max-min:overflow=latest", "earliest or least-recent"),
        ("nowhere.py", "no such policy file"),
    ],
)
def test_what_cannot_be_read_gets_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words or "."):
        parse_policy(text)


def test_names_are_unique_and_declarations_are_known_words() -> None:
    with pytest.raises(TypeError, match="two policies are called fifo"):

        @register("fifo")
        class Impostor:
            knows: ClassVar[frozenset[str]] = frozenset()
            powers: ClassVar[frozenset[str]] = frozenset()

    with pytest.raises(TypeError, match="unknown declaration"):

        @register("psychic")
        class Psychic:
            knows: ClassVar[frozenset[str]] = frozenset({"the future"})
            powers: ClassVar[frozenset[str]] = frozenset()

    assert "psychic" not in registered()
    assert list(registered()) == sorted(registered())


WRAPPER = '''
"""Wraps a policy: shows that policies nest.

Source: this test. Knows: what the inner policy knows.
"""
from dataclasses import dataclass, field

from dovetail.core.policy import Decision, Policy, register
from dovetail.policies.fifo import Fifo


@register("wrapper-of-a-test")
@dataclass(frozen=True, slots=True)
class Wrapper:
    inner: Policy = field(default_factory=Fifo)
    quota_gpus: int = 0
    eager: bool = False

    knows = frozenset({"length"})
    powers = frozenset({"preempt", "migrate"})

    @property
    def order(self):
        return self.inner.order

    @property
    def initial(self):
        return self.inner.initial

    def decide(self, view, memory):
        return self.inner.decide(view, memory)
'''


@pytest.fixture
def wrapper(tmp_path: Path) -> object:
    path = tmp_path / "wrapper.py"
    path.write_text(WRAPPER)
    yield path
    _registry.pop("wrapper-of-a-test", None)


def test_a_policy_inside_a_policy_is_read_and_spelled(wrapper: Path) -> None:
    text = f"{wrapper}:Wrapper:inner=tiresias:thresholds=3/7;inside=list,quota-gpus=4,eager=true"
    policy = parse_policy(text)
    assert name_of(policy.inner) == "tiresias"  # type: ignore[attr-defined]
    assert policy.inner.thresholds == (3.0, 7.0)  # type: ignore[attr-defined]
    assert parse_policy(spell(policy)) == policy


def test_a_policy_inside_a_policy_runs_as_if_alone(wrapper: Path) -> None:
    rows = [Row(1, 8), Row(2, 4), Row(1, 2, submit_s=1)]
    policy = parse_policy(f"{wrapper}:Wrapper:inner=srtf")
    assert play(rows, policy).finishes == play(rows, "srtf").finishes


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def decide(:\n", r"policy.py, line 1: syntax error"),
        ("x = 1 / 0\n", "the file cannot be run: ZeroDivisionError"),
        ("import no_such_module_at_all\n", "the file cannot be run: ModuleNotFoundError"),
        ("x = 1\n", "0 policies in the file"),
    ],
)
def test_a_broken_policy_file_gets_one_clear_error(tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "policy.py"
    path.write_text(source)
    with pytest.raises(InputError, match=words):
        parse_policy(str(path))


def test_a_class_that_is_no_policy_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_text("class Thing:\n    pass\n")
    with pytest.raises(InputError, match="'Thing' is not a policy"):
        parse_policy(f"{path}:Thing")
    with pytest.raises(InputError, match="no class 'Thin'"):
        parse_policy(f"{path}:Thin")


def test_a_file_that_is_not_text_gets_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError):
        parse_policy(str(path))


@dataclass(frozen=True)
class Plain:
    """A policy that was never registered."""

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        return Decision()


def test_an_unregistered_policy_goes_by_the_name_of_its_class() -> None:
    policy: Policy = Plain()
    assert name_of(policy) == "Plain"


def test_a_name_imports_only_the_file_of_its_policy() -> None:
    script = (
        "import sys, dovetail.policies\n"
        "from dovetail.core.policy import parse_policy\n"
        "parse_policy('fifo')\n"
        "print(*(m for m in sys.modules if m.startswith('dovetail.policies.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["dovetail.policies.fifo"]
