"""Requests as long as may be: read again from the store, and short enough to start workers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cluster_by_hand import ByHand, by_hand, spec
from dovetail.core.errors import InputError
from dovetail.live.client.client import Client
from dovetail.live.controller.launches import launcher_in
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.node.transport import TO_AGENTS, Addressed
from dovetail.live.server.messages.changes import Submit, SubmitReply
from dovetail.live.server.messages.listing import JobList, ListJobs
from dovetail.live.server.protocol import line_of_question
from dovetail.live.server.server import Server
from dovetail.live.store.record_codec import record_of, record_text
from dovetail.wire.agent import AgentOrder
from dovetail.wire.codec import LINE_BYTES_MAX
from dovetail.wire.spec_faults import COMMAND_BYTES_MAX, ENVIRONMENT_BYTES_MAX
from dovetail.wire.submission import Submission

ROOM = 1000
"""Characters for the other words of a request."""


@pytest.fixture
def cluster() -> Iterator[ByHand]:
    with by_hand() as cluster:
        yield cluster


def test_the_longest_request_is_read_again_and_starts_its_worker(cluster: ByHand) -> None:
    # What takes the most room of what may be asked: each such letter takes six in JSON.
    longest = spec(
        command=("x" * (COMMAND_BYTES_MAX - ROOM),),
        environment=(("LONG", "é" * (ENVIRONMENT_BYTES_MAX - ROOM)),),
    )
    assert cluster.ask(Submit("k", (Submission(longest),))) == SubmitReply((1,))
    listed = cluster.ask(ListJobs())
    assert isinstance(listed, JobList) and [row.job for row in listed.jobs] == [1]
    kept = cluster.store.find(1)
    assert kept is not None and kept.spec.environment == longest.environment
    order = launcher_in(cluster.home / "jobs")(1, kept.spec)
    start = replace(order, worker=0, generation=1, gpu=0)
    assert len(TO_AGENTS.encode(Addressed(0, AgentOrder(1, start=start)))) <= LINE_BYTES_MAX


def test_what_no_order_could_carry_is_refused_before_it_is_kept(cluster: ByHand) -> None:
    # In UTF-8 it is short enough to be asked; in JSON of ours each letter takes twelve.
    wide = spec(environment=(("WIDE", "\N{GRINNING FACE}" * (ENVIRONMENT_BYTES_MAX - ROOM)),))
    with pytest.raises(
        InputError, match=r"job 'job': it takes \d+ KiB .*put long values into files"
    ):
        cluster.ask(Submit("k", (Submission(spec()), Submission(wide))))
    assert cluster.come == [] and cluster.reader.counts() == {}
    assert cluster.ask(Submit("k", (Submission(spec()),))) == SubmitReply((1,))


def test_a_record_is_read_again_however_many_workers_it_names() -> None:
    members = tuple(GangMember(n, n // 8, n % 8) for n in range(40_000))
    record = JobRecord(1, members=members)
    text = record_text(record)
    assert len(text) > LINE_BYTES_MAX
    assert record_of(text) == record


def test_a_submit_that_is_too_long_is_told_so_at_once(cluster: ByHand) -> None:
    server = Server(cluster.desk, cluster.folder.socket)
    server.start()
    try:
        client = Client(cluster.home)
        script = "#!/bin/sh\n" + "true\n" * 40_000
        jobs = [spec(f"job{n}", script=script) for n in range(6)]
        with pytest.raises(InputError, match=r"submit: it takes \d+ KiB at once, over 1024 KiB"):
            client.submit(*jobs)
        assert client.submit(*jobs[:4]) == (1, 2, 3, 4)
    finally:
        server.stop()


def test_raw_text_that_is_not_escaped_is_taken_as_it_is(cluster: ByHand) -> None:
    server = Server(cluster.desk, cluster.folder.socket)
    server.start()
    try:
        asked = Submit("k", (Submission(spec(environment=(("CITY", "Köln 東京"),))),))
        said = json.loads(line_of_question(asked.verb, asked))
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(cluster.folder.socket))
            line.sendall(json.dumps(said, ensure_ascii=False).encode() + b"\n")
            with line.makefile("rb") as replies:
                assert json.loads(replies.readline()) == {"ok": True, "jobs": [1]}
    finally:
        server.stop()
    kept = cluster.store.find(1)
    assert kept is not None and dict(kept.spec.environment) == {"CITY": "Köln 東京"}
