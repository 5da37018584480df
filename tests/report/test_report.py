"""The report: one file, nothing fetched, every name escaped, every number that of its frame."""

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from result_scene import (
    HOSTILE,
    comparison_of,
    empty_result,
    hostile_pair,
    pair,
    run_result,
    with_record,
)

from dovetail.record.result import IF_KNOWN, Contrast
from dovetail.report.changes import changes, paired
from dovetail.report.comparison_tables import (
    changes_tables,
    option_table,
    ranking_table,
    shorts,
    spending_table,
    user_table,
    wait_frame,
    wait_tables,
)
from dovetail.report.order import Mark, marks
from dovetail.report.page import PageTable
from dovetail.report.page_data import job_rows
from dovetail.report.plots import canvas
from dovetail.report.recorded_tables import recorded_tables
from dovetail.report.report import (
    comparison_report,
    run_report,
)

VOID = {"meta", "link", "br", "img", "input"}


class Outline(HTMLParser):
    """Collects tags, attributes and text, and checks that every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.text.append(data)


@cache
def plain() -> str:
    return comparison_report(pair(80))


def test_hostile_names_are_text_everywhere():
    comparison = hostile_pair()
    for page in (comparison_report(comparison), run_report(comparison.results["sjf" + HOSTILE])):
        outline = Outline(page)
        assert page.count("<script") == plain().count("<script") == len(outline.scripts)
        assert not any(k.startswith("on") for _, attrs in outline.tags for k in attrs)
        assert HOSTILE in "".join(outline.text)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the pictures empty, for tests of what stands beside them: they take seconds."""
    monkeypatch.setattr("dovetail.report.page.svg_text", lambda figure: "<svg></svg>")


@pytest.fixture(scope="module")
def plain_page() -> str:
    return plain()


def test_the_page_points_at_nothing_outside_itself(plain_page):
    for _, attrs in Outline(plain_page).tags:
        for key in ("src", "href", "xlink:href", "action", "data"):
            value = attrs.get(key)
            assert value is None or value.startswith(("#", "data:")), value
    assert "@import" not in plain_page and not re.search(r"url\((?!#)", plain_page)


def test_the_browser_runs_the_scripts_of_the_page_and_no_other(plain_page):
    outline = Outline(plain_page)
    (policy,) = (
        attrs["content"] or ""
        for _, attrs in outline.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    runs = [text for text in outline.scripts if not text.startswith("{")]
    assert "Permission is hereby granted" in runs[0]  # a copy of the library has its licence
    assert len(runs) == 5
    for text in runs:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_ids_on_the_page_are_unique(plain_page):
    ids = [a["id"] for _, a in Outline(plain_page).tags if "id" in a]
    assert ids and len(ids) == len(set(ids))


def test_every_reference_inside_the_page_finds_its_target(plain_page):
    outline = Outline(plain_page)
    ids = {a["id"] for _, a in outline.tags if "id" in a}
    for _, attrs in outline.tags:
        for value in attrs.values():
            for target in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert target in ids
        if (attrs.get("xlink:href") or "").startswith("#"):
            assert attrs["xlink:href"][1:] in ids


def test_the_report_says_the_answer_the_table_the_notes_and_the_manifest():
    comparison = replace(pair(150), notes=["Switching costs 30 s a start."])
    text = "".join(Outline(comparison_report(comparison)).text)
    assert "sjf finishes the mean job" in text
    assert "Switching costs 30 s a start." in text
    assert '"gpus_per_node": 8' in text
    for title in ("Mean JCT", "Where every GPU-second went", "What changed, by user"):
        assert title in text


def headings(page: str) -> list[str]:
    return re.findall(r'<h2 id="([^"]+)"', page)


def test_the_sections_come_in_the_order_in_which_a_director_asks(plain_page):
    order = ["policies", "who-pays", "waits", "queue", "gpu-time", "jct", "users"]
    assert headings(plain_page) == [*order, "words", "options"]
    page = comparison_report(with_record(pair(60)))
    assert headings(page) == ["recorded", *order, "words", "options"]
    assert page.index('id="answer"') < page.index('id="recorded"')
    targets = re.findall(r"<nav.*?</nav>", page, re.S)[0]
    assert re.findall('href="#([^"]+)"', targets) == headings(page)


def test_every_word_that_a_head_uses_is_explained_on_the_page(plain_page):
    outline = Outline(plain_page)
    tips = {attrs["data-tip"] for tag, attrs in outline.tags if tag == "th" and "data-tip" in attrs}
    assert len(tips) >= 12
    explained = "".join(outline.text)
    for meaning in tips:
        assert meaning in explained
    for word in ("JCT", "wait", "time to first start", "bound", "slowdown", "95 % interval"):
        assert f"<dt>{word}</dt>" in plain_page


def frames_of(comparison) -> dict[str, pl.DataFrame]:
    tables = [ranking_table(comparison), spending_table(comparison), option_table(comparison)]
    tables += [t.table for t in wait_tables(comparison)]
    tables += [t.table for one in changes_tables(comparison) for t in one.tables]
    if record := recorded_tables(comparison, shorts(comparison)):
        tables += [t.table for t in record.tables]
        tables += [record.departures] if record.departures else []
    if users := user_table(comparison):
        tables.append(users)
    return {table.name: table.frame for table in tables}


def downloads(page: str) -> dict[str, str]:
    head = "data:text/csv;charset=utf-8,"
    return {
        attrs["download"]: unquote((attrs["href"] or "").removeprefix(head))
        for tag, attrs in Outline(page).tags
        if tag == "a" and attrs.get("download")
    }


@pytest.mark.usefixtures("undrawn")
def test_each_table_can_be_downloaded_and_is_its_frame():
    for comparison in (pair(90), with_record(pair(90)), hostile_pair()):
        page = comparison_report(comparison)
        frames, found = frames_of(comparison), downloads(page)
        assert {f"{name}.csv" for name in frames} == set(found)
        assert page.count("<table") == len(found)
        for name, frame in frames.items():
            assert found[f"{name}.csv"] == frame.write_csv()


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), min_size=1),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=6,
    )
)
@settings(max_examples=60)
def test_the_csv_of_any_frame_reads_back_as_the_frame(rows):
    frame = pl.DataFrame(rows, schema={"group": pl.String, "wait_s": pl.Float64}, orient="row")
    link = PageTable("any", [], [], frame).csv_link
    assert not set('"<>#%') & set(re.sub("%[0-9A-F]{2}", "", link))
    text = unquote(link.partition(",")[2])
    assert text == frame.write_csv()
    assert_frame_equal(pl.read_csv(io.StringIO(text), schema=frame.schema), frame)


def test_losers_come_first_and_weigh_by_their_jobs():
    comparison = pair(300)
    for label in ("user", "size_class", "model"):
        frame = changes(comparison, "sjf", label)
        assert frame["total_s"].is_sorted(descending=True)
        pairs = paired(comparison.results["sjf"], comparison.results["fifo"])
        lost_s = (pairs["jct_s"] - pairs["base_s"]).sum()
        assert frame["total_s"].sum() == pytest.approx(lost_s, rel=1e-9, abs=0.01)
        assert frame["jobs"].sum() == len(pairs)
    (payers,) = changes_tables(comparison)
    shown = [row.cells[1].sort_key for row in payers.tables[0].table.rows]
    assert shown == sorted(shown, reverse=True)


@pytest.mark.usefixtures("undrawn")
def test_a_split_that_the_page_has_never_heard_of_is_shown():
    comparison = pair(60)
    results = {
        name: replace(run, splits={**run.splits, "cost_center": run.splits["size_class"]})
        for name, run in comparison.results.items()
    }
    page = comparison_report(replace(comparison, results=results))
    assert "<h3>Cost center</h3>" in page and "wait-by-cost_center.csv" in page
    assert "<h3>Cost center</h3>" in run_report(results["fifo"])


def test_waits_are_those_of_the_splits_a_column_for_each_policy_in_order():
    comparison = with_record(pair(120))
    frame = wait_frame(comparison, "size_class")
    names = ["recorded", "sjf", "fifo"]
    kinds = {"wait_s": "avg_wait_s", "median_s": "median_wait_s", "90_percent_s": "p90_wait_s"}
    expected = [f"{kind} {name}" for name in names for kind in kinds]
    assert sorted(frame.columns) == sorted(["group", "jobs", *expected])
    assert [c for c in frame.columns if c.startswith("wait_s")] == [f"wait_s {n}" for n in names]
    for name in names:
        split = comparison.results[name].splits["size_class"]
        for kind, column in kinds.items():
            waits = dict(split.select("group", column).iter_rows())
            shown = frame[f"{kind} {name}"].to_list()
            assert shown == [round(waits[g], 3) for g in frame["group"]]


def test_the_record_stands_beside_the_replay_of_the_baseline():
    recorded = with_record(pair(120), slower=1.25)
    record = recorded_tables(recorded, shorts(recorded))
    assert record is not None and "under fifo" in record.words
    frame = record.tables[0].table.frame
    ratios = dict(frame.select("number", "ratio").iter_rows())
    assert ratios["avg_wait_s"] == pytest.approx(0.8)
    assert record.tables[1].table.frame["ratio"].to_list() == pytest.approx([0.8] * 4)
    assert recorded_tables(pair(20), {}) is None


def data_of(page: str) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def column(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def unlike(part: dict, base: np.ndarray) -> np.ndarray:
    """Returns a column that is packed as its difference from another."""
    if "all" in part:
        return column(part["all"], "<f4")
    made = base.copy()
    made[column(part["at"], "<u2")] = column(part["to"], "<f4")
    return made


def times_of(data: dict) -> list[dict[str, np.ndarray]]:
    """Returns the times of each policy, as the scripts of the page read them."""
    nothing, found = np.zeros(data["jobs"]["rows"], "<f4"), []
    for wait, start, run in zip(
        *(data["jobs"][key] for key in ("wait", "start", "run")), strict=True
    ):
        wait_s = unlike(wait, nothing)
        run_s = unlike(run, nothing if run["base"] < 0 else found[run["base"]]["run"])
        start_s = unlike(start, wait_s)
        found.append(
            {"wait": wait_s, "time_to_start": start_s, "run": run_s, "jct": wait_s + run_s}
        )
    return found


@pytest.mark.usefixtures("undrawn")
def test_the_scripts_are_given_each_job_as_it_was():
    comparison = pair(150)
    data = data_of(comparison_report(comparison))
    assert [p["name"] for p in data["policies"]] == ["sjf", "fifo"]
    for place, name in enumerate(("sjf", "fifo")):
        jobs = comparison.results[name].jobs
        for key in ("jct", "wait", "time_to_start"):
            found = times_of(data)[place][key]
            assert found.tolist() == pytest.approx(jobs[f"{key}_s"].to_list(), rel=1e-6, abs=2e-3)
    users = data["jobs"]["labels"]["user"]
    named = [users["names"][i] for i in column(users["of"], "<u1")]
    assert named == comparison.results["fifo"].jobs["user"].to_list()
    assert data["jobs"]["joined"] is False


@pytest.mark.usefixtures("undrawn")
def test_a_policy_that_runs_jobs_as_long_as_another_costs_the_page_little():
    comparison = pair(2000)
    results = {f"{name}-{i}": run for i in range(9) for name, run in comparison.results.items()}
    many = comparison_of(results, "fifo-0")
    jobs = data_of(comparison_report(many))["jobs"]
    packed = len(json.dumps([jobs[key] for key in ("wait", "start", "run")]))
    # As float32 in base64, each of three columns of a policy would be 5.3 bytes a job.
    assert packed < 0.5 * len(results) * 3 * 2000 * 16 / 3


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_joined_rows_keep_every_mean(jobs, rows_max, seed):
    run = run_result(jobs, seed)
    found = job_rows({"a": run}, rows_max)
    assert len(found.frame) <= max(rows_max, 1)
    assert found.frame["weight"].sum() == found.jobs == jobs
    for time in ("jct_s", "wait_s"):
        mean = (found.frame[f"{time}:0"] * found.frame["weight"]).sum() / jobs
        assert mean == pytest.approx(run.jobs[time].mean(), rel=1e-9)
    if len(found.names["user"]) > 1:
        of = found.frame.group_by("user").agg(pl.col("weight").sum()).sort("user")
        counts = run.jobs.group_by("user").len().sort("user")
        assert of["weight"].to_list() == counts["len"].to_list()


def test_figures_say_what_they_show_to_a_screen_reader():
    labels = [a["aria-label"] for t, a in Outline(run_report(run_result(60))).tags if t == "svg"]
    assert len(labels) == 5 and all(labels)


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_report_of_nothing_or_of_one_job_is_a_whole_page(jobs):
    run = run_result(1) if jobs else empty_result()
    alone = comparison_of({run.policy: run}, run.policy)
    two = comparison_of({"fifo": run, "sjf": run}, "fifo")
    for page in (run_report(run), comparison_report(alone), comparison_report(two)):
        assert page.endswith("</html>\n") and Outline(page).tags


def test_the_same_result_gives_the_same_page(plain_page):
    assert comparison_report(pair(80)) == plain_page


def test_a_report_of_a_hundred_thousand_jobs_stays_small():
    run = run_result(400)
    copies = 250
    jobs = pl.concat([run.jobs.with_columns(pl.col("submit_s") + 40 * i) for i in range(copies)])
    jobs = jobs.with_columns(pl.int_range(pl.len()).cast(pl.String).alias("job_id"))
    series = pl.concat([run.series.with_columns(pl.col("t_s") + 9 * i) for i in range(copies)])
    spans = pl.concat([run.spans] * copies)
    big = replace(run, jobs=jobs, series=series.sort("t_s"), spans=spans)
    assert len(jobs) == 100_000
    results = {n: replace(big, manifest={**big.manifest, "policy": n}) for n in ("a", "b", "c")}
    page = comparison_report(comparison_of(results, "a"))
    assert len(page.encode()) < 3_000_000
    data = data_of(page)
    assert data["jobs"]["joined"] and data["jobs"]["count"] == 100_000
    weight, jct_s = column(data["jobs"]["weight"], "<u4"), times_of(data)[0]["jct"]
    assert np.average(jct_s, weights=weight) == pytest.approx(jobs["jct_s"].mean(), rel=1e-5)


def test_a_report_of_seven_policies_and_eight_thousand_jobs_stays_small():
    run = run_result(500)
    jobs = pl.concat([run.jobs] * 16).with_columns(
        pl.int_range(pl.len()).cast(pl.String).alias("job_id"),
        (pl.lit("user") + (pl.int_range(pl.len()) % 300).cast(pl.String)).alias("user"),
    )
    results = {f"policy-{i}": replace(run, jobs=jobs) for i in range(7)}
    page = comparison_report(comparison_of(results, "policy-0"))
    assert data_of(page)["jobs"]["rows"] == 8000
    assert len(page.encode()) < 3_000_000


@pytest.mark.usefixtures("undrawn")
def test_a_row_told_true_lengths_looks_like_its_policy_on_the_whole_page():
    runs = pair(120).results
    names = {"fifo": "fifo", "sjf": "sjf", "sjf, known": "sjf"}
    results = {name: runs[of] for name, of in names.items()}
    comparison = comparison_of(results, "fifo")
    kind = pl.when(pl.col("policy") == "sjf, known").then(pl.lit(IF_KNOWN)).otherwise("kind")
    comparison = replace(comparison, table=comparison.table.with_columns(kind.alias("kind")))
    marked = marks(results)
    assert marked["sjf, known"] == Mark(marked["sjf"].colour, is_told=True)
    assert marked["fifo"].colour != marked["sjf"].colour
    page = comparison_report(comparison)
    policies = {p["name"]: p for p in data_of(page)["policies"]}
    assert [p["told"] for p in policies.values()] == [False, False, True]
    assert "2 policies on the same trace" in page
    assert policies["sjf, known"]["colour"] == policies["sjf"]["colour"]
    assert (policies["sjf"]["dash"], len(policies["sjf, known"]["dash"])) == (None, 2)
    told = f'<i class="swatch told" style="--paint: {marked["sjf"].colour}"></i>sjf, known'
    plain = f'<i class="swatch" style="--paint: {marked["sjf"].colour}"></i>sjf'
    # Head of a column of waits, rows of the ranking and of the GPU-time, who pays.
    assert page.count(told) >= 4
    assert page.count(plain) >= 4
    assert f'{marked["sjf"].colour}"></i>sjf, known' in page.replace(" told", "")
    looks = canvas.looks(results)
    assert looks["sjf, known"]["color"] == looks["sjf"]["color"]
    assert looks["sjf, known"]["linestyle"] != looks["sjf"]["linestyle"]
    names = comparison.ranked["policy"].to_list()
    assert [p["name"] for p in data_of(page)["policies"]] == names


def test_who_pays_opens_on_what_could_be_deployed():
    runs = pair(120).results
    results = {"fifo": runs["fifo"], "fast": runs["sjf"], "today": runs["sjf"]}
    told = Contrast("today", "today", "fifo", 120, 0.8, 0.7, 0.9)
    comparison = replace(comparison_of(results, "fifo"), contrasts=[told])
    assert comparison.deployable == "today"
    payers = changes_tables(comparison)
    assert {one.name: one.is_open for one in payers} == {"fast": False, "today": True}
    (note,) = [one.note for one in payers if one.note]
    assert note == "best that could be deployed today"
    shown = {row.name: row for row in ranking_table(comparison).rows}
    assert shown["today"].is_best and not shown["fast"].is_best
    assert "best that could be deployed today" in shown["today"].note
