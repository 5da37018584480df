"""The report in a real browser: quiet, whole at any width, and it answers."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from result_scene import HOSTILE, comparison_of, hostile_pair, pair, run_result, with_record

from dovetail.report.comparison_tables import ranking_table
from dovetail.report.report import write_comparison_report, write_run_report
from dovetail.report.words import duration
from patience import PATIENCE_S


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


@pytest.fixture(scope="module")
def wide_file(tmp_path_factory) -> Path:
    """Writes the report of seven policies and the record, with accounts, on 700 jobs."""
    path = tmp_path_factory.mktemp("wide") / "report.html"
    comparison = with_record(pair(700))
    results = dict(comparison.results)
    for i in range(5):
        results[f"policy-{i}"] = results["sjf"]
    account = (pl.lit("group ") + pl.col("user").str.slice(-1)).alias("account")
    results = {
        name: replace(run, jobs=run.jobs.with_columns(account)) for name, run in results.items()
    }
    write_comparison_report(comparison_of(results, "fifo", 300.0), path)
    return path


@pytest.fixture
def open_page(browser):
    """Returns what opens a file at a width; every word said, and every request, fails the test."""
    pages, said = [], []

    def open_(path: Path, width: int = 1400, **more):
        page = browser.new_page(viewport={"width": width, "height": 900}, **more)
        page.set_default_timeout(PATIENCE_S * 1000)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: said.append(request.url) if request.url != path.as_uri() else None,
        )
        page.goto(path.as_uri())
        return page

    yield open_
    for page in pages:
        page.close()
    assert said == []


def overflowing(page) -> list[str]:
    """Returns what stands outside the page, other than what a scrolling box of a table holds."""
    return page.evaluate(
        """() => {
            const wide = document.documentElement.clientWidth + 0.5;
            const inside = (one) => one.closest(".scroll, pre, #tip, svg, [hidden]");
            return [...document.querySelectorAll("body *")]
                .filter((one) => !inside(one) || one.matches(".scroll, svg"))
                .map((one) => [one, one.getBoundingClientRect()])
                .filter(([, box]) => box.width && (box.left < -0.5 || box.right > wide))
                .map(([one]) => one.outerHTML.slice(0, 120));
        }"""
    )


@pytest.mark.parametrize("name", ["report.html", "run.html"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_quietly_and_fits_the_width(open_page, report_file, name, width, scheme):
    page = open_page(
        report_file.with_name(name), width, color_scheme=scheme, reduced_motion="reduce"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overflowing(page) == []
    assert page.evaluate(
        "[...document.querySelectorAll('[data-chart]')]"
        ".every((one) => one.querySelector('.rows, canvas, p') && !one.querySelector('svg'))"
    )
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    light, dark = sum(map(int, re.findall(r"\d+", ink))), sum(map(int, re.findall(r"\d+", paper)))
    assert (light < dark) == (scheme == "light")


@pytest.mark.parametrize("width", [1400, 390])
def test_eight_rows_fit_the_width_and_labels_keep_apart(open_page, wide_file, width):
    page = open_page(wide_file, width)
    assert overflowing(page) == []
    if width == 1400:
        cut = page.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter((box) => box.scrollWidth > box.clientWidth + 1)"
            ".map((box) => box.getAttribute('aria-label'))"
        )
        assert cut == []
    touching = page.evaluate(
        """() => [...document.querySelectorAll(".axis .track")].flatMap((axis) => {
            const boxes = [...axis.children].map((one) => one.getBoundingClientRect());
            boxes.sort((a, b) => a.left - b.left);
            const after = boxes.slice(1);
            return after.filter((box, i) => box.left < boxes[i].right).map((box) => box.left);
        })"""
    )
    assert touching == []


def test_colours_and_order_of_policies_are_the_same_in_tables_and_pictures(open_page, wide_file):
    page = open_page(wide_file)
    looks = page.evaluate(
        """() => {
            const paint = (one) => one.querySelector(".swatch").style.getPropertyValue("--paint");
            const of = (where) => [...document.querySelectorAll(where)].map(
                (one) => [one.innerText.trim().split("\\n")[0], paint(one)]);
            return [
                of("[aria-label='Table policies'] tbody th"),
                of("[data-chart=mean] .row:not(.axis) .name"),
                of("[aria-label='Table wait-by-size_class'] .policy"),
            ];
        }"""
    )
    table, mean, waits = looks
    assert table == mean == waits
    assert table[0] == ["recorded", "#7d8590"]


@pytest.fixture(scope="module")
def crowded_file(tmp_path_factory) -> Path:
    """Writes the report of twenty rows with long names; half of them are told true lengths."""
    path = tmp_path_factory.mktemp("crowded") / "report.html"
    runs = pair(200).results
    names = ["fifo", *(f"a-policy-{i:02d}-of-a-file:x=1" for i in range(9))]
    results = {n: runs["fifo" if n == "fifo" else "sjf"] for n in names}
    results |= {f"{name}, known": run for name, run in results.items()}
    write_comparison_report(comparison_of(results, "fifo"), path)
    return path


@pytest.mark.parametrize("width", [1400, 390])
def test_rows_with_known_lengths_look_like_their_policies_and_no_name_is_cut(
    open_page, crowded_file, width
):
    page = open_page(crowded_file, width)
    assert overflowing(page) == []
    cut = page.evaluate(
        "[...document.querySelectorAll('.name')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert cut == 0
    marks = page.evaluate(
        """() => {
            const rows = [...document.querySelectorAll("[data-chart=mean] .row:not(.axis)")];
            return rows.map((row) => [
                row.querySelector(".name").innerText.trim(),
                row.querySelector(".swatch").style.getPropertyValue("--paint"),
                row.classList.contains("told"),
                getComputedStyle(row.querySelector(".dot")).borderTopWidth,
            ]);
        }"""
    )
    assert len(marks) == 20
    colours = {name: paint for name, paint, _, _ in marks}
    for name, paint, told, border in marks:
        assert (told, border) == (name.endswith(", known"), "2px" if told else "0px")
        assert paint == colours[name.removesuffix(", known")] if told else True
    assert len(set(colours.values())) == 10
    lines = page.evaluate(
        "[...drawnLines.values()][0].plot.series.slice(1)"
        ".map((one) => [one.label, one.dash ?? null])"
    )
    dashes = dict(lines)
    assert dashes["fifo"] is None and len(dashes["fifo, known"]) == 2


def test_the_pointer_reads_exact_values(open_page, report_file, tmp_path):
    comparison = pair(200)
    write_comparison_report(comparison, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    row = page.locator("[data-chart=mean] .row").first
    row.hover()
    best = comparison.ranked.row(0, named=True)
    said = page.locator("#tip").inner_text()
    assert said.startswith(f"sjf: mean JCT {duration(best['avg_jct_s'])}, 95 % interval")
    plot = page.locator("[data-chart=queue] .u-over").first
    plot.hover()
    values = (
        page.locator("[data-chart=queue] .u-legend").first.locator(".u-value").all_inner_texts()
    )
    assert len(values) == 3 and all(re.fullmatch(r"[\d.,]+", value) for value in values)
    series = comparison.results["sjf"].series
    assert 0 <= float(values[1].replace(",", "")) <= series["waiting"].max()


def test_a_drag_zooms_and_a_button_shows_the_whole_range_again(open_page, wide_file):
    page = open_page(wide_file)
    figure = page.locator("[data-chart=queue]")
    plot = figure.locator(".u-over").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    scale = (
        "[...drawnLines.values()].filter((lines) => lines.xName.startsWith('time since'))"
        ".map((lines) => lines.plot.scales.x.max - lines.plot.scales.x.min)"
    )
    whole = page.evaluate(scale)
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, y, steps=4)
    page.mouse.up()
    zoomed = page.evaluate(scale)
    assert zoomed == pytest.approx([w / 2 for w in whole], rel=0.05)  # both pictures of time
    figure.get_by_role("button", name="Whole range").first.click()
    assert page.evaluate(scale)[0] == pytest.approx(whole[0])


def test_keys_move_and_zoom_a_picture(open_page, wide_file):
    page = open_page(wide_file)
    lines = page.locator("[data-chart=jct] .lines")
    lines.focus()
    page.keyboard.press("ArrowRight")
    value = page.locator("[data-chart=jct] .u-value").nth(1)
    first = value.inner_text()
    assert re.fullmatch(r"[\d.]+", first)
    for _ in range(120):
        page.keyboard.press("ArrowRight")
    assert float(value.inner_text()) > float(first)
    span = """() => {
        const part = document.querySelector("[data-chart=jct] .part");
        const { min, max } = drawnLines.get(part).plot.scales.x;
        return Math.log(max / min);
    }"""
    whole = page.evaluate(span)
    page.keyboard.press("+")
    assert page.evaluate(span) == pytest.approx(whole / 2)
    page.keyboard.press("0")
    assert page.evaluate(span) == pytest.approx(whole)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") in ("TH", "BUTTON")


def test_a_filter_chooses_jobs_for_every_picture_of_jobs(open_page, tmp_path):
    comparison = pair(300)
    write_comparison_report(comparison, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    assert "All 300 jobs" in page.locator(".chosen").inner_text()
    page.locator("select[data-label=user]").select_option(label="user03")
    page.locator("select[data-label=size_class]").select_option(label="1")
    means = {}
    for name in ("sjf", "fifo"):
        jobs = comparison.results[name].jobs
        mine = jobs.filter((pl.col("user") == "user03") & (pl.col("size_class") == "1"))
        means[name] = mine["jct_s"].mean()
        row = page.locator(".of-chosen tbody tr").filter(has_text=name)
        cells = row.locator("td").all_inner_texts()
        assert cells[0] == str(len(mine))
        assert cells[1] == duration(means[name])
        assert cells[5] == duration(mine["wait_s"].mean())
    assert f"{len(mine)} of 300 jobs" in page.locator(".chosen").inner_text()
    shown = page.locator("[data-chart=mean] .value").all_inner_texts()
    assert [text for text in shown if text] == [duration(means["sjf"]), duration(means["fifo"])]
    assert page.locator("[data-chart=size] .group").count() == 1
    assert "not started" in page.locator("[data-chart=queue]").inner_text()
    page.get_by_role("button", name="Show all jobs").click()
    assert page.locator(".of-chosen table").count() == 0
    assert page.locator("[data-chart=size] .group").count() == 4


def test_the_jobs_that_have_not_started_are_counted_as_the_run_counted_them(open_page, tmp_path):
    """Nothing is preempted here, so that who waits is who has not started."""
    write_comparison_report(pair(200), tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    ours, theirs = page.evaluate(
        "[notStarted(0), [...unpacked(data.series.waiting[0], Float32Array)].map((y) => y || 0)]"
    )
    assert ours == pytest.approx(theirs, abs=0.02)
    assert max(ours) > 1


def test_a_table_is_saved_as_csv(open_page, tmp_path):
    comparison = pair(60)
    write_comparison_report(comparison, tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    with page.expect_download() as saved:
        page.locator("a[download='policies.csv']").click()
    assert saved.value.suggested_filename == "policies.csv"
    assert Path(saved.value.path()).read_text() == ranking_table(comparison).frame.write_csv()


def test_joined_jobs_are_named_as_such(open_page, tmp_path, monkeypatch):
    monkeypatch.setattr("dovetail.report.page_data.VALUES_MAX", 200)
    write_comparison_report(pair(300), tmp_path / "report.html")
    page = open_page(tmp_path / "report.html")
    said = page.locator(".chosen").inner_text()
    assert "All 300 jobs" in said and "means are exact" in said
    page.locator("select[data-label=size_class]").select_option(label="2-4")
    assert "All jobs: the filter does not reach" in page.locator("[data-chart=queue]").inner_text()


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
    page.get_by_role("button", name="policy").first.click()
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
    assert page.locator("#selection").is_hidden()
    assert page.locator("a[download]").count() >= 8
    context.close()
