"""Progress in solo seconds from what workers report."""

from collections.abc import Sequence

import pytest

from builders import Row, jobs_of
from dovetail.core.beliefs import SizedJob
from dovetail.core.placement import Placement
from dovetail.live.measuring.learner import LearningBelief
from dovetail.live.measuring.meter import LAST, UNSEEN_S, JobMeter, MeasuredProgress, ReportMeter
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.spec import JobSpec
from dovetail.wire.worker import Training

SPEC = JobSpec("net", ("train",), "/", gpus=2, min_gpus=1, max_gpus=4, trains=True, model="net")
ON_2 = Placement(((0, 2),))


class Job:
    """A job that does what it is told and reports every second."""

    def __init__(self, meters: ReportMeter, number: int = 0, spec: JobSpec = SPEC, total: int = 0):
        self.meters, self.number, self.spec, self.total = meters, number, spec, total
        self.samples = self.generation = 0
        self.now = self.since_s = 0.0
        self.placement = ON_2
        self.beside: Sequence[tuple[int, Placement]] = ()

    def trains(self, *rates: float) -> MeasuredProgress | None:
        """Reports once a second at these rates; returns what the last report means."""
        progress = None
        for rate in rates:
            self.now += 1.0
            self.samples += int(rate)
            said = Training(self.generation, self.samples // 10, self.samples, rate, 0.1,
                            total_samples=self.total)  # fmt: skip
            progress = self.meters.heard(
                self.number,
                said,
                self.now,
                spec=self.spec,
                placement=self.placement,
                neighbours=self.beside,
                since_s=self.since_s,
            )
        return progress

    def switches(self, gpus: int, pause_s: float = 3.0) -> None:
        """Goes over to another number of GPUs; the training loop stands still meanwhile."""
        self.now += pause_s
        self.since_s = self.now
        self.generation += 1
        self.placement = Placement(((0, gpus),))


@pytest.fixture
def learner() -> Learning:
    jobs = jobs_of(
        Row(2, 99.0, model="net", elastic=True, min_gpus=1, max_gpus=4), Row(1, 99.0, model="b")
    )
    return Learning(linear_physics(jobs, Injected(1.05)), jobs)


@pytest.fixture
def job(learner: LearningBelief) -> Job:
    return Job(ReportMeter(learner), total=10_000)


def test_alone_as_requested_a_job_makes_a_second_a_second(job: Job) -> None:
    assert job.trains(100.0) is None, "a first report may tell of another manner"
    progress = job.trains(100.0, 100.0, 100.0)
    assert progress is not None
    assert (progress.done_s, progress.rate, progress.length_s) == (4.0, 1.0, 100.0)
    assert progress.news, "the rate alone is known from now on"


def test_progress_is_in_units_of_the_rate_alone_whatever_the_gpus(job: Job) -> None:
    job.trains(*[100.0] * 4)
    job.switches(4)
    progress = job.trains(*[150.0] * 5)
    assert progress is not None
    assert (progress.done_s, progress.rate, progress.length_s) == (11.5, 1.5, 100.0)


def test_neither_a_pause_nor_a_switch_is_taken_for_slowness(job: Job) -> None:
    job.trains(*[100.0] * 4)
    job.switches(4)
    progress = job.trains(30.0)
    assert progress is not None
    assert progress.rate == 2.0, "as believed, until it is measured"
    job.trains(150.0, 150.0)
    progress = job.trains(0.0)
    assert progress is not None
    assert progress.rate == 1.5, "one pause among three"


def test_a_job_that_stands_still_is_found_out(job: Job) -> None:
    job.trains(*[100.0] * 6)
    progress = job.trains(*[0.0] * (LAST - LAST // 2))
    assert progress is not None
    assert (progress.rate, progress.done_s) == (0.0, 6.0)


def test_the_rate_is_the_median_of_the_last_reports(job: Job) -> None:
    job.trains(*[100.0] * 10)
    progress = job.trains(130.0, 70.0, 500.0, 110.0, 10.0)
    assert progress is not None
    assert progress.rate == pytest.approx(1.1)


def test_before_it_ran_as_requested_its_rate_alone_follows_from_where_it_runs(job: Job) -> None:
    job.placement = Placement(((0, 4),))
    progress = job.trains(100.0, 200.0)
    assert progress is not None
    assert (progress.done_s, progress.rate, progress.length_s) == (3.0, 2.0, 100.0)


def test_the_share_that_is_done_never_changes_when_the_rate_alone_does(job: Job) -> None:
    job.placement = Placement(((0, 4),))
    before = job.trains(*[200.0] * 4)
    job.switches(2)
    after = job.trains(*[160.0] * 4)
    assert before is not None and after is not None
    assert before.length_s is not None and after.length_s is not None
    assert before.done_s / before.length_s == pytest.approx(800 / 10_000)
    assert after.done_s / after.length_s == pytest.approx(1440 / 10_000)
    assert after.length_s == pytest.approx(10_000 / 160)


def test_an_owners_length_serves_until_something_is_measured(learner: LearningBelief) -> None:
    spec = JobSpec("net", ("train",), "/", gpus=2, max_gpus=2, trains=True, duration_s=50.0)
    job = Job(ReportMeter(learner), spec=spec, total=10_000)
    progress = job.trains(100.0)
    assert progress is not None
    assert (progress.done_s, progress.rate, progress.length_s) == (0.5, 1.0, 50.0)
    progress = job.trains(100.0, 100.0, 100.0)
    assert progress is not None
    assert (progress.done_s, progress.length_s) == (4.0, 100.0)


def test_nothing_is_said_of_a_length_that_nobody_knows(learner: LearningBelief) -> None:
    progress = Job(ReportMeter(learner)).trains(100.0, 100.0)
    assert progress is not None
    assert progress.length_s is None


def test_a_clock_makes_a_thousand_samples_a_second(learner: LearningBelief) -> None:
    spec = JobSpec("net", (), "/", gpus=2, max_gpus=2, paced=True, duration_s=20.0)
    progress = Job(ReportMeter(learner), spec=spec, total=20_000).trains(500.0)
    assert progress is not None
    assert (progress.done_s, progress.length_s) == (0.5, 20.0)


def test_progress_is_told_to_a_sample(job: Job) -> None:
    progress = job.trains(100.0, 100.0)
    assert progress is not None and progress.grain_s == pytest.approx(1 / 100.0)


def test_what_a_clock_says_counts_when_it_says_it_again_later() -> None:
    def said(rate: float) -> Training:
        return Training(1, 0, 0, rate, 0.1)

    gauge = JobMeter()
    for rate, now in ((1000.0, 1.0), (500.0, 2.0), (500.0, 2.0)):
        gauge = gauge.heard(said(rate), now, 1.0, clock=True)
        assert gauge.rates == (), "it may say so only while others change over"
    assert gauge.heard(said(500.0), 3.0, 1.0, clock=True).rates == (500.0,)
    assert gauge.heard(said(400.0), 3.0, 1.0).rates == (400.0,)


def test_a_job_that_went_back_to_a_checkpoint_has_made_less_progress(job: Job) -> None:
    job.trains(*[100.0] * 6)
    job.samples, job.generation = 200, 1
    job.since_s = job.now
    progress = job.trains(100.0)
    assert progress is not None
    assert progress.done_s == 3.0


GUEST = JobSpec("b", ("train",), "/", trains=True, model="b", shareable=True)


def both(meters: ReportMeter) -> tuple[Job, Job]:
    """Returns two jobs that were alone for a while and share a GPU now."""
    host, guest = Job(meters, 0, total=10_000), Job(meters, 1, GUEST, total=10_000)
    guest.placement = host.placement = Placement(((0, 1),), gpu_ids=((0,),))
    host.spec = JobSpec("net", ("train",), "/", trains=True, model="net", shareable=True)
    host.trains(*[100.0] * 4)
    guest.now = guest.since_s = 4.0
    guest.trains(*[100.0] * 4)
    for one, other in ((host, guest), (guest, host)):
        one.now = one.since_s = 10.0
        one.beside = [(other.number, other.placement)]
    return host, guest


def test_a_wrong_pair_is_found_by_its_measured_rates(learner: Learning) -> None:
    meters = ReportMeter(learner)
    host, guest = both(meters)
    pair = (0, host.placement), (1, guest.placement)
    news: MeasuredProgress | None = None
    while news is None or not news.news:
        assert not meters.undo_pair(*pair), "nothing is known yet"
        guest.trains(50.0)
        news = host.trains(50.0)
    assert meters.undo_pair(*pair), "both need 95 seconds and are twice as slow"
    assert not meters.undo_pair(*pair), "it is said once"
    assert learner.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, 1))[0] == pytest.approx(
        2.0
    )


def test_a_neighbour_that_does_not_train_yet_teaches_nothing(learner: Learning) -> None:
    host, _ = both(ReportMeter(learner))
    host.trains(*[100.0] * 6)
    assert learner.ratio(0, 1, 1, 1) == 0.0


def test_a_neighbour_that_never_reports_is_at_work_after_a_while(learner: Learning) -> None:
    host, _ = both(ReportMeter(learner))
    host.meters.ended(1)
    host.trains(*[50.0] * int(UNSEEN_S - 1))
    assert learner.ratio(0, 1, 1, 1) == 0.0
    host.trains(*[50.0] * 4)
    assert learner.ratio(0, 1, 1, 1) == pytest.approx(2.0)


def test_a_job_that_is_over_leaves_nothing_behind(job: Job) -> None:
    job.trains(*[100.0] * 4)
    job.meters.ended(0)
    job.total = 0
    progress = job.trains(100.0, 100.0)
    assert progress is not None
    assert progress.length_s is None


def test_the_work_of_a_job_is_known_once_its_rate_alone_is(job: Job) -> None:
    assert job.meters.length_s(job.number) is None
    job.trains(*[100.0] * 4)
    assert job.meters.length_s(job.number) == 100.0
    job.meters.ended(job.number)
    assert job.meters.length_s(job.number) is None
