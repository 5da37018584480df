"""The comparison of all systems: its beds, what a run feels, its ratios, tables and verdicts."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from doc_pages import ROOT
from dovetail.core.policy import parse_policy
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import plan
from dovetail.physics.zoo.models import zoo
from dovetail.study.bound import judges, powers_of
from dovetail.study.options import Options
from dovetail.study.uncertainty import Interval
from dovetail.traces.transform import offered_load
from papers import systems
from papers.frame.claim import HOLDS, MISSED, Reproduction
from papers.frame.experiment import Numbers, Playable, Results
from papers.frame.scope import Scope
from papers.systems.experiments import (
    BASE,
    BASELINE,
    CLAIMS,
    EXCLUSIVE_HOST,
    RESIZE,
    SHARE,
    START,
    STOP,
    System,
    SystemBound,
    SystemRun,
    owners,
    powers_class,
    system_run,
    variants,
)
from papers.systems.experiments import systems as everybody
from papers.systems.results import OPEN, REVERSED, geometric, verdict
from papers.systems.workloads import (
    GENERATED,
    GPUS,
    LONGEST_S,
    REAL,
    WIDEST_GPUS,
    WindowWorkload,
    left_out,
    sources,
)

README = Path(__file__).resolve().parents[2] / "README.md"
WORKLOAD = WindowWorkload(GENERATED[1], "", 0, 2, 40, 0.9, 3)


def test_a_bed_offers_its_load_with_jobs_that_fit() -> None:
    trace = WORKLOAD.trace()
    assert len(trace) == 40
    assert offered_load(trace, GPUS) == pytest.approx(0.9)
    assert trace.jobs.gpus.max() <= WIDEST_GPUS
    assert trace.duration_s.max() <= LONGEST_S
    late = (trace.jobs.deadline_s - trace.jobs.submit_s) / trace.duration_s
    assert 1.5 <= late.min() < late.max() <= 2.5


def test_seeds_draw_models_and_deadlines_but_not_jobs() -> None:
    one, other = WORKLOAD.trace(), replace(WORKLOAD, seed=4).trace()
    np.testing.assert_array_equal(one.duration_s, other.duration_s)
    np.testing.assert_array_equal(one.jobs.submit_s, other.jobs.submit_s)
    assert one.jobs.model.texts() != other.jobs.model.texts()
    assert not np.array_equal(one.jobs.deadline_s, other.jobs.deadline_s)


def test_windows_of_a_trace_do_not_overlap() -> None:
    ids = [set(replace(WORKLOAD, window=w, windows=3).trace().jobs.job_id) for w in range(3)]
    assert not ids[0] & ids[1]
    assert not ids[1] & ids[2]


def test_jobs_of_one_user_and_size_train_one_model_that_can_use_the_gpus() -> None:
    jobs = replace(WORKLOAD, jobs=200).trace().jobs
    models: dict[tuple[str, int], set[str]] = {}
    for row in range(len(jobs)):
        job = jobs.job(row)
        models.setdefault((job.user, job.gpus), set()).add(job.model)
        family, _, name = job.model.partition("/")
        assert zoo()[job.model].max_gpus.value >= job.gpus
        assert family != "asrpt" or plan(pipelined()[name], job.gpus)
    assert all(len(names) == 1 for names in models.values())
    assert len(models) < len(jobs)


def test_a_bed_may_have_models_of_one_family_and_jobs_that_nobody_may_stop() -> None:
    jobs = replace(WORKLOAD, family="asrpt", preemptible=0.0).trace().jobs
    assert {name.partition("/")[0] for name in jobs.model.names} == {"asrpt"}
    assert not jobs.preemptible.any()


def test_what_no_window_holds_is_counted() -> None:
    jobs, gpu_s = left_out(GENERATED[0], "")
    assert 0 < jobs < gpu_s < 1


def test_real_traces_are_taken_where_they_are(data_dir: Path) -> None:
    assert sources(Scope(data_dir)) == (REAL, str(data_dir))
    assert sources(Scope(None)) == (GENERATED, "")


RIGID = owners(elastic=0.0)
DEAR = BASE.switching.scaled(10.0)
FELT = (
    ("srtf", replace(BASE, interference=2.0, adopt=owners(0.0, 0.0), cycle="barrier")),
    ("sjf", replace(BASE, switching=DEAR, belief="scaling:0.5,memory:0.3")),
    ("tiresias", replace(BASE, forecast="noisy:2", belief="noisy:0.5,stages:0.5")),
    ("lucid", replace(BASE, adopt=RIGID, cycle="barrier", belief="scaling:0.5")),
    ("muri-s", replace(BASE, adopt=owners(elastic=0.5), belief="interference:0.5")),
    ("afs-l", replace(BASE, interference=2.0, adopt=owners(1.0, 0.5), belief="interference:0.5")),
    ("gimbal", replace(BASE, belief="stages:0.5", cycle="barrier")),
)


@pytest.mark.parametrize(("policy", "options"), FELT)
def test_what_cannot_touch_a_policy_changes_nothing(policy: str, options: Options) -> None:
    assert system_run(policy, WORKLOAD, options) == system_run(policy, WORKLOAD)
    assert SystemRun(WORKLOAD, policy, options).play() == system_run(policy, WORKLOAD).play()


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("srtf", replace(BASE, forecast="noisy:1")),
        ("srtf", replace(BASE, switching=DEAR)),
        ("lucid", replace(BASE, interference=1.5)),
        ("afs-l", replace(BASE, belief="scaling:0.5,memory:0.3")),
        ("muri-s", replace(BASE, cycle="barrier")),
        ("gimbal", replace(BASE, switching=DEAR)),
    ],
)
def test_what_touches_a_policy_is_varied(policy: str, options: Options) -> None:
    varied = system_run(policy, WORKLOAD, options)
    assert varied != system_run(policy, WORKLOAD)
    expected = "scaling:0.5" if options.belief != "exact" else "exact"
    assert varied == SystemRun(WORKLOAD, policy, replace(options, belief=expected))


def test_who_starts_jobs_only_needs_no_leave_to_stop_them() -> None:
    held = replace(WORKLOAD, preemptible=0.0)
    assert system_run("sjf-bsbf", held).workload == WORKLOAD
    assert system_run("srtf", held).workload == held
    assert SystemRun(held, "sjf-bsbf", BASE).play() == system_run("sjf-bsbf", held).play()


def test_everybody_is_compared_once_under_one_name() -> None:
    names = [s.name for s in everybody()]
    assert len(names) == len(set(names))
    assert {BASELINE, *(n for c in CLAIMS for n in (c.better, c.worse))} <= set(names)
    assert "no-op" not in names
    assert len({s.text for s in everybody()}) == len(names)


@pytest.mark.parametrize(
    ("powers", "found"),
    [
        ((), START),
        (("delay",), START),
        (("preempt", "migrate"), STOP),
        (("share", "preempt"), SHARE),
        (("interleave", "preempt", "migrate"), SHARE),
        (("resize", "preempt", "change batch"), RESIZE),
    ],
)
def test_the_class_of_powers_is_the_widest(powers: Sequence[str], found: str) -> None:
    assert powers_class(frozenset(powers)) == found


def test_a_ratio_is_a_geometric_mean_with_students_interval() -> None:
    found = geometric(np.array([0.5, 1.0, 2.0]))
    # Logarithms -ln 2, 0, ln 2: mean 0, error ln 2 / sqrt 3, Student's 97.5 % for 2 is 4.302653.
    reach = 4.302653 * log(2) / 3**0.5
    assert found.value == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((exp(-reach), exp(reach)), rel=1e-6)
    assert geometric(np.array([3.0])).low is None


def test_a_verdict_needs_an_interval_that_excludes_one() -> None:
    assert verdict(Interval(0.8, 0.7, 0.9)) == HOLDS
    assert verdict(Interval(0.8, 0.7, 1.0)) == OPEN
    assert verdict(Interval(1.2, 1.1, 1.3)) == REVERSED
    assert verdict(Interval(0.8)) == OPEN


class Told(Results):
    """Trials whose results are told: so many seconds by policy, twice that without elasticity."""

    SECONDS: ClassVar = {"afs-l": 50.0, "muri-s": 200.0}
    """Interleaved jobs take a quarter of it where one job loads at a time."""

    def play(self, trials: Sequence[Playable]) -> list[Numbers]:
        return [self._told(t) for t in trials]

    def _told(self, one: Playable) -> Numbers:
        if isinstance(one, SystemBound):
            return {"jct_s": 25.0}
        assert isinstance(one, SystemRun)
        jct_s = self.SECONDS.get(one.policy, 100.0) * (1 + 0.01 * one.workload.window)
        slower = 2.5 if ("elastic", 0.0) in one.options.adopt else 1.0
        slower *= 0.25 if one.options == EXCLUSIVE_HOST else 1.0
        rest = ("p99_jct_s", "makespan_s", "slowdown", "preemptions")
        return {"jct_s": jct_s * slower, "met": 0.5, "switching": 0.1, **dict.fromkeys(rest, 1.0)}


@pytest.fixture(scope="module")
def told() -> Reproduction:
    return systems.paper.reproduce(Scope(None, "quick"), Told())


def test_the_table_ranks_everybody_and_says_what_each_may(told: Reproduction) -> None:
    table = told.tables[0]
    assert len(table.rows) == len(everybody())
    first, last = (dict(zip(table.heads, table.rows[i], strict=True)) for i in (0, -1))
    assert (first["policy"], first["over srtf"], first["x bound"]) == ("afs-l", "0.50", "2.01")
    assert first["knows"] == "length, scaling"
    assert first["may"] == "start, migrate, preempt, resize"
    assert (last["policy"], last["over srtf"], last["met"]) == ("muri-s", "2.00", "50%")
    bound_of = {row[0]: row[table.heads.index("x bound")] for row in table.rows}
    assert bound_of["pollux"] == ""


def test_claims_hold_are_open_or_are_reversed(told: Reproduction) -> None:
    rows = {row.what: row for row in told.claims}
    assert rows["afs-l before srtf"].verdict == HOLDS
    assert rows["afs-l before srtf"].ours == pytest.approx(0.5)
    assert rows["muri-s before srsf"].verdict == MISSED
    assert rows["muri-s before srsf"].why == "here it is the other way round"
    assert rows["sjf-bsbf before sjf"].verdict == MISSED
    assert "cannot be told" in rows["sjf-bsbf before sjf"].why


def test_claims_count_the_settings_they_survive(told: Reproduction) -> None:
    sheet = next(s for s in told.tables if s.name == "claims")
    row = next(dict(zip(sheet.heads, r, strict=True)) for r in sheet.rows if r[0].endswith("srtf"))
    assert row["base"] == HOLDS
    assert row[REVERSED] == "1"
    assert row["otherwise than in the base"] == "reversed: none elastic"
    changed = next(s for s in told.tables if s.name == "changes")
    at = list(changed.heads).index("afs-l")
    by_setting = {r[0].partition(": ")[2]: r[at] for r in changed.rows}
    assert by_setting["none elastic"] == "2.50"
    assert by_setting["costs x 10"] == "1.00"


def test_both_readings_of_a_host_are_ranked(told: Reproduction) -> None:
    sheet = next(s for s in told.tables if s.name == "hosts")
    rows = {row[0]: dict(zip(sheet.heads, row, strict=True)) for row in sheet.rows}
    assert "srtf" not in rows
    muri = rows["muri-s"]
    assert (muri["rank"], muri["over srtf"]) == (str(len(everybody())), "2.00")
    assert muri["over srtf, one job loads"] == "0.50"
    assert muri["rank, one job loads"] == "5"  # behind AFS-L and three more Muris


def test_winners_are_named_by_place(told: Reproduction) -> None:
    sheet = next(s for s in told.tables if s.name == "winners")
    row = dict(zip(sheet.heads, sheet.rows[0], strict=True))
    assert row["best of all"] == "afs-l 0.50"
    assert row["stop jobs"].endswith(" 1.00")


def test_every_setting_differs_from_the_base_in_one_thing() -> None:
    for v in variants((0.3,)):
        changed = [f for f in Options.__slots__ if getattr(v.options, f) != getattr(BASE, f)]
        others = [v.load != 0.0, v.family != "", v.preemptible != 1.0]
        things = 2 if v.options == EXCLUSIVE_HOST else 1  # of free competition and of turns
        assert len(changed) + sum(others) == things, v.words


def test_the_pictures_are_drawn(told: Reproduction) -> None:
    for picture in told.plots:
        assert picture.draw().axes


@pytest.mark.slow
def test_nobody_beats_the_bound_for_its_powers() -> None:
    for system in everybody():
        if judges(system.policy):
            for window in range(2):
                workload = replace(WORKLOAD, window=window)
                least = SystemBound(workload, powers_of(system.policy)).play()["jct_s"]
                assert system_run(system.text, workload).play()["jct_s"] >= least * (1 - 1e-6)


@pytest.mark.parametrize("system", everybody(), ids=lambda s: s.name)
def test_the_comparison_lists_each_system(system: System) -> None:
    page = (ROOT / "docs/claims/comparison.md").read_text()
    assert re.search(
        rf"^\| {re.escape(system.name)} \| (\d\.\d\d )?\| \d\.\d\d \| ", page, re.MULTILINE
    )


def test_the_readme_says_what_its_eight_systems_may() -> None:
    rows = re.findall(r"^\| [^|]+\| `([\w-]+)` \| ([^|]+) \|", README.read_text(), re.M)
    assert len(rows) == 8
    for name, may in rows:
        assert may == (", ".join(sorted(parse_policy(name).powers)) or "nothing")
