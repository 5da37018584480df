"""Messages survive the wire, and nothing else gets through it."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.wire.agent import ORDERS, AgentOrder, NotifyWorkers, StartWorker
from dovetail.wire.codec import LINE_BYTES_MAX, WireError
from dovetail.wire.worker import FROM_WORKER, TO_WORKER, Meet, Regroup, Training


def test_an_order_with_messages_inside_survives() -> None:
    command, environment = ("python", "train.py", "--name=a b;$(rm)"), (("A", "b"),)
    start = StartWorker(7, 2, 5, 1, command, "/f", "/o", "/w", environment, True, share=0.5)
    order = AgentOrder(3, start=start)
    tell = AgentOrder(3, tell=NotifyWorkers(7, (1, 2), regroup=Regroup(6, (1, 2), 2, (3, 5))))
    assert ORDERS.decode(ORDERS.encode(order)) == order
    assert ORDERS.decode(ORDERS.encode(tell)) == tell


def test_a_start_order_has_the_form_that_earlier_agents_read() -> None:
    order = AgentOrder(
        3, start=StartWorker(7, 2, 5, 1, ("x",), "/f", "/o", "/w", user="ann", rank=2)
    )
    launch = {"command": ["x"], "folder": "/f", "output": "/o", "workdir": "/w", "user": "ann"}
    start = {"job": 7, "worker": 2, "generation": 5, "gpu": 1, "launch": launch, "rank": 2}
    assert json.loads(ORDERS.encode(order)) == {"m": "Order", "epoch": 3, "start": start}


def test_a_message_leaves_its_defaults_out() -> None:
    said = json.loads(TO_WORKER.encode(Regroup(1, (4,))))
    assert said == {"m": "Regroup", "generation": 1, "members": [4]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"m":"Order"}', "'epoch' is missing"),
        (b'{"m":"Order","epoch":1,"x":2}', "unknown field 'x'"),
        (b'{"m":"Order","epoch":"1"}', "expected int"),
        (b'{"m":"Order","epoch":true}', "expected int"),
        (b'{"m":"Regroup","generation":1}', "unknown message"),
        (b'{"m":["Order"]}', "unknown message"),
        (b'{"m":"Order","epoch":1,"start":[]}', "expected an object"),
        (b'{"m":"Order","epoch":1,"start":{"job":7}}', "launch: expected an object"),
        (b'{"m":"Order","epoch":1,"start":{"launch":{"job":7}}}', "unknown field 'job'"),
        (b'{"m":"Order","epoch":1,"start":{"user":"a","launch":{}}}', "unknown field 'user'"),
        (b" " * (LINE_BYTES_MAX + 1), "is over"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_order_is_refused_with_its_reason(line: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        ORDERS.decode(line)


def test_no_rate_is_not_a_number() -> None:
    with pytest.raises(WireError, match="expected float"):
        FROM_WORKER.decode(
            b'{"m":"Training","generation":1,"step":1,"samples":1,"rate":NaN,"iteration_s":1.0}'
        )


def test_a_number_too_large_for_a_rate_is_refused() -> None:
    line = b'{"m":"Training","generation":1,"step":1,"samples":1,"rate":%s,"iteration_s":1}'
    with pytest.raises(WireError, match="expected float"):
        FROM_WORKER.decode(line % (b"9" * 400))
    assert FROM_WORKER.decode(line % b"7").rate == 7.0


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_message_or_a_wire_error(line: bytes) -> None:
    with contextlib.suppress(WireError):
        TO_WORKER.decode(line)


MEASURED = st.just(0.0) | st.floats(1e-9, 2.0**53)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("samples", "1" + "0" * 400),
        ("samples", "-50"),
        ("step", "9" * 17),
        ("total_samples", "-1" + "0" * 30),
        ("generation", "1" + "0" * 30),
        ("rate", "Infinity"),
        ("rate", "1e308"),
        ("rate", "-5"),
        ("rate", "5e-324"),
        ("iteration_s", "Infinity"),
        ("stage_s", "[0.0, -1.0]"),
    ],
)
def test_numbers_that_nobody_can_reckon_with_are_refused(field: str, value: str) -> None:
    good = {"generation": 1, "step": 1, "samples": 1, "rate": 1, "iteration_s": 1}
    said = ",".join(f'"{k}":{v}' for k, v in {**good, field: value}.items())
    with pytest.raises(WireError):
        FROM_WORKER.decode(b'{"m":"Training",%s}' % said.encode())


def test_a_loss_may_be_any_number() -> None:
    line = (
        b'{"m":"Training","generation":1,"step":1,"samples":1,"rate":1,"iteration_s":1,"loss":%s}'
    )
    assert FROM_WORKER.decode(line % b"-1e300").loss == -1e300


@settings(max_examples=100)
@given(
    st.builds(
        Training,
        generation=st.integers(-1, 9),
        step=st.integers(0, 2**53),
        samples=st.integers(0, 2**53),
        rate=MEASURED,
        iteration_s=MEASURED,
        stage_s=st.lists(MEASURED).map(tuple),
        loss=st.none() | st.floats(allow_nan=False),
    )
)
def test_training_reports_survive(message: Training) -> None:
    assert FROM_WORKER.decode(FROM_WORKER.encode(message)) == message


def test_a_meeting_keeps_its_address() -> None:
    assert TO_WORKER.decode(TO_WORKER.encode(Meet(2, "127.0.0.1:99"))) == Meet(2, "127.0.0.1:99")
