"""Tables of names are complete: policies, metrics, columns, records of the log."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import dovetail.policies  # registers the policies
from doc_pages import ROOT
from dovetail.cli.main import cli, run
from dovetail.core.messages import HOW
from dovetail.core.policy import registered, spell
from dovetail.core.trace import ENDS
from dovetail.record.result import COMPARISON_COLUMNS, GPU_SECOND_KINDS, JOB_COLUMNS
from dovetail.traces.readers.sacct_lines import COMMAND, FIELDS
from dovetail.traces.rows import CANONICAL

assert dovetail.policies
NAMES = {n: c for n, c in registered().items() if c.module.startswith("dovetail.policies.")}
OWN = sorted(name for name, entry in NAMES.items() if not entry.is_preset)
PAGE_OF = {entry.cls: name for name, entry in NAMES.items() if not entry.is_preset}
PRESETS = sorted(NAMES.keys() - set(OWN))


def page(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", OWN)
def test_every_policy_has_a_page_with_its_parameters_and_defaults(name: str) -> None:
    text = page(f"docs/policies/{name}.md")
    cls = registered()[name]
    assert text.startswith(f"# {name}")
    assert "**Knows**" in text
    spelled = spell(cls()).partition(":")[2].split(",")
    defaults = {key.replace("_", "-"): str(value) for key, value in cls.fixed.items()}
    defaults |= dict(p.split("=", 1) for p in spelled if p)
    for parameter in cls.parameters:
        assert re.search(rf"^\| `{parameter}` \| `{re.escape(defaults[parameter])}`", text, re.M), (
            f"{name}: {parameter}={defaults[parameter]}"
        )


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_of_a_policy_names_its_presets(name: str) -> None:
    text = page(f"docs/policies/{PAGE_OF[NAMES[name].cls]}.md")
    assert f"`{name}`" in text
    for value in NAMES[name].fixed.values():
        assert f"`{value}`" in text


@pytest.mark.parametrize("name", OWN)
def test_the_page_of_a_policy_says_what_it_may_do(name: str) -> None:
    may = page(f"docs/policies/{name}.md").partition("**May**")[2].partition("\n")[0]
    for power in sorted(registered()[name]().powers):
        assert power in may


def test_no_policy_page_is_left_over() -> None:
    assert sorted(p.stem for p in (ROOT / "docs/policies").glob("*.md")) == OWN


def documented(text: str) -> set[str]:
    """Returns the names between backticks in the first cells of a page's tables."""
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_every_number_of_a_run_is_defined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, out = tmp_path / "t.csv", tmp_path / "out"
    trace.write_text("job_id,submit_s,gpus,duration_s\n0,0,1,10\n1,1,2,20\n")
    assert run(["simulate", str(trace), "-p", "fifo", "-o", str(out), "--no-report"]) == 0
    capsys.readouterr()
    names = documented(page("docs/reference/metrics.md"))
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary) - {"manifest", "gpu_seconds"} <= names
    assert set(summary["gpu_seconds"]) == set(GPU_SECOND_KINDS)
    assert set(GPU_SECOND_KINDS) <= names
    assert set(pl.read_csv(out / "jobs.csv").columns) == set(JOB_COLUMNS)
    assert set(JOB_COLUMNS) | set(COMPARISON_COLUMNS) <= names
    for end in ENDS:
        assert f"`{end}`" in page("docs/reference/metrics.md")


def test_every_record_of_the_log_is_described() -> None:
    source = page("src/dovetail/record/log.py")
    written = set(re.findall(r'"e":"(\w+)"', source))
    assert {"submitted", "started", "ended", "closed"} <= written
    text = page("docs/reference/event-log.md")
    for name in (*written, *HOW, *ENDS):
        assert f"`{name}`" in text


def test_every_column_of_a_trace_is_described() -> None:
    assert set(CANONICAL) <= documented(page("docs/reference/traces.md"))


def test_the_architecture_names_every_package() -> None:
    packages = {p.parent.name for p in (ROOT / "src/dovetail").glob("*/__init__.py")}
    rows = set(re.findall(r"^\| `(\w+)/` \|", page("docs/architecture.md"), re.MULTILINE))
    assert rows == packages


def test_every_dependency_has_its_paragraph() -> None:
    import tomllib

    project = tomllib.loads(page("pyproject.toml"))["project"]
    extras = project.get("optional-dependencies", {})
    wanted = [*project["dependencies"], *(d for group in extras.values() for d in group)]
    text = page("docs/decisions.md").lower()
    for requirement in wanted:
        name = re.split(r"[\[<>=~! ]", requirement)[0].lower()
        if name != "dovetail":
            assert name in text, f"{name} has no paragraph in docs/decisions.md"


@pytest.mark.parametrize(
    "name", ["README.md", "docs/guides/analyse-your-log.md", "docs/reference/traces.md"]
)
def test_the_columns_to_request_of_sacct_are_one_list(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", "")
    asked = [line for line in text.splitlines() if line.startswith("sacct ")]
    assert asked == [f"{COMMAND} > log.txt"]


def test_the_help_of_import_requests_the_same_columns() -> None:
    said = CliRunner().invoke(cli, ["trace", "import", "--help"]).output
    text = re.sub(r"\\\n\s*", "", said)
    assert f"{COMMAND} > log.txt" in text
    assert COMMAND.endswith(f" -o {','.join(FIELDS)}")
