"""The report: one file, nothing fetched, every name escaped; and seen in a real browser."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from result_scene import comparison_of, empty_result, pair, run_result

from dovetail.report.report import (
    comparison_report,
    run_report,
    write_comparison_report,
    write_run_report,
)
from patience import PATIENCE_S

HOSTILE = "<script>alert('x')</script>\"&lt;%s' onload=alert(1)"
VOID = {"meta", "link", "br", "img", "input"}


class Outline(HTMLParser):
    """Collects tags, attributes and text, and checks that every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
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
        self.text.append(data)


def hostile_pair():
    comparison = pair(60)
    results = {}
    for name, run in comparison.results.items():
        jobs = run.jobs.with_columns(
            pl.lit(HOSTILE).alias("user"),
            pl.lit(HOSTILE).alias("model"),
            (pl.lit(HOSTILE) + pl.col("job_id")).alias("job_id"),
        )
        splits = {k: s.with_columns(pl.lit(HOSTILE).alias("group")) for k, s in run.splits.items()}
        manifest = {**run.manifest, "trace": {"name": HOSTILE, "jobs": 60}}
        results[name + HOSTILE] = replace(run, jobs=jobs, splits=splits, manifest=manifest)
    return comparison_of(results, "fifo" + HOSTILE, 100.0, [HOSTILE])


def test_hostile_names_are_text_everywhere(tmp_path: Path):
    comparison = hostile_pair()
    for page in (comparison_report(comparison), run_report(comparison.results["sjf" + HOSTILE])):
        outline = Outline(page)
        assert [t for t, _ in outline.tags].count("script") == 1
        assert not any(k.startswith("on") for _, attrs in outline.tags for k in attrs)
        assert HOSTILE in "".join(outline.text)


@pytest.fixture(scope="module")
def plain_page() -> str:
    return comparison_report(pair(80))


def test_the_page_points_at_nothing_outside_itself(plain_page):
    for _, attrs in Outline(plain_page).tags:
        for key in ("src", "href", "xlink:href", "action", "data"):
            value = attrs.get(key)
            assert value is None or value.startswith(("#", "data:")), value
    assert "@import" not in plain_page and not re.search(r"url\((?!#)", plain_page)
    assert "default-src 'none'" in plain_page


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
    assert "Whom sjf serves better and worse than fifo" in text
    assert '"gpus_per_node": 8' in text
    for title in ("Mean JCT", "Where every GPU-second went", "What changed, by user"):
        assert title in text


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


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="needs: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium", path="/usr/bin")
    if chromium is None:
        pytest.skip("needs a browser: no `chromium` on PATH or in /usr/bin")
    with sync.sync_playwright() as play:
        # Shared memory of a container may be too small for it, and others may use it up.
        quiet = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = play.chromium.launch(
            executable_path=chromium, args=quiet, timeout=PATIENCE_S * 1000
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    comparison = hostile_pair()
    write_comparison_report(comparison, path)
    write_run_report(comparison.results["sjf" + HOSTILE], path.with_name("run.html"))
    return path


@pytest.mark.parametrize("name", ["report.html", "run.html"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_quietly_and_fits_the_width(browser, report_file, name, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE_S * 1000)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report_file.with_name(name).as_uri())
    assert said == []
    assert asked == [report_file.with_name(name).as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for svg in page.query_selector_all("figure svg"):
        box = svg.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["height"] > 60
    ink, paper = page.evaluate(
        "[getComputedStyle(document.querySelector('figure svg')).color,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = sum(map(int, re.findall(r"\d+", ink))), sum(map(int, re.findall(r"\d+", paper)))
    assert (light < dark) == (scheme == "light")
    page.close()


def test_a_click_sorts_the_table_and_another_turns_it_round(browser, tmp_path: Path):
    run = run_result(20)
    means = {"p1": 900.0, "p2": 86400.0, "p3": 7200.0}
    results = {
        n: replace(run, summary={**run.summary, "avg_jct_s": m, "p99_jct_s": 1e6 / m})
        for n, m in means.items()
    }
    path = tmp_path / "report.html"
    write_comparison_report(comparison_of(results, "p1"), path)
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(path.as_uri())

    def order() -> list[str]:
        rows = page.query_selector_all("table.sortable >> nth=0 >> tbody th")
        return [row.inner_text().split("\n")[0] for row in rows]

    assert order() == ["p1", "p3", "p2"]  # ranked by mean, before any script
    page.get_by_role("button", name="99 %", exact=True).first.click()
    assert order() == ["p2", "p3", "p1"]
    page.get_by_role("button", name="99 %", exact=True).first.click()
    assert order() == ["p1", "p3", "p2"]
    page.get_by_role("button", name="policy").click()
    assert order() == ["p1", "p2", "p3"]
    assert page.locator("th[aria-sort]").count() == 1
    page.close()


def test_the_report_reads_without_scripts(browser, report_file):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(report_file.as_uri())
    assert page.locator("table tbody tr").count() >= 2
    assert page.locator("figure svg").count() >= 9
    context.close()
