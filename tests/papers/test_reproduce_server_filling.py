"""The ServerFilling paper: its jobs, and that the ratio is of the same jobs on both clusters."""

import numpy as np
import pytest

from papers.frame.experiment import Results
from papers.frame.scope import Scope
from papers.server_filling import paper
from papers.server_filling.claims import figure_4, towards_one
from papers.server_filling.experiments import ServerFillingExperiment
from papers.server_filling.published import EXPONENTIAL, HYPEREXPONENTIAL, MEANS, ONE, SRPT
from papers.server_filling.workloads import SERVERS, UNIT_S, MultiserverWorkload


@pytest.mark.parametrize(("sizes", "variability"), [(EXPONENTIAL, 1.0), (HYPEREXPONENTIAL, 10.0)])
def test_sizes_have_mean_one_whatever_a_job_needs(sizes: str, variability: float) -> None:
    trace = MultiserverWorkload(sizes, 0.9, 100_000).trace()
    size = trace.jobs.gpus * trace.duration_s / UNIT_S
    assert size.mean() == pytest.approx(1, rel=0.05)
    assert size.var() / size.mean() ** 2 == pytest.approx(variability, rel=0.15)
    assert np.corrcoef(size, trace.jobs.gpus)[0, 1] == pytest.approx(0, abs=0.02)
    assert sorted(set(trace.jobs.gpus.tolist())) == [1, 2, 4, 8]
    load = size.sum() / SERVERS / (trace.jobs.submit_s[-1] / UNIT_S)
    assert load == pytest.approx(0.9, rel=0.05)


def test_one_fast_server_has_the_same_work_at_the_same_times() -> None:
    many, one = (MultiserverWorkload(EXPONENTIAL, 0.84, 50, 3, o).trace() for o in (False, True))
    assert many.jobs.submit_s.tolist() == one.jobs.submit_s.tolist()
    assert one.jobs.gpus.tolist() == [1] * 50
    work = many.jobs.gpus * many.duration_s / SERVERS
    assert one.duration_s.tolist() == pytest.approx(work.tolist())


def test_no_policy_beats_the_one_fast_server() -> None:
    planned = ServerFillingExperiment(Scope(None, "quick", 1), Results(1))
    run = planned.run(SRPT, EXPONENTIAL, 0.84, 300)
    assert planned.over_one(run) > 1
    assert paper.experiment is ServerFillingExperiment


def test_claims_compare_ratios_and_say_whether_they_fall() -> None:
    planned = ServerFillingExperiment(Scope(None, "default", 1), _Known())
    rows = {(row.part, row.what): row for row in (*figure_4(planned), *towards_one(planned))}
    row = rows["Figure 4, exponential, load 0.9", "serverfilling-srpt over SRPT-1"]
    known = MEANS[EXPONENTIAL, 0.9]
    assert row.published == pytest.approx(known[SRPT] / known[ONE])
    assert row.verdict == "within"
    assert {r.verdict for (part, _), r in rows.items() if part.startswith("Theorem")} == {"holds"}


class _Known(Results):
    """Results that are those of the paper."""

    def play(self, runs):  # type: ignore[no-untyped-def]
        """Returns the published response of each run."""
        return [{"response": _published(run)} for run in runs]


def _published(run) -> float:  # type: ignore[no-untyped-def]
    known = MEANS[run.workload.sizes, run.workload.load]
    return known[ONE] if run.workload.one_server else known[run.policy]
