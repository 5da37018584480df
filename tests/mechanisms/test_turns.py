"""Turns by hand: units that were run count for good, and who has waited longest comes first.

ALGORITHMS section 2.3: a counter holds the whole units since submission; jobs are chosen by
(counter, time of last eviction or submission, id); as soon as all fit, the units are cancelled.
"""

from builders import Row, Story, play
from dovetail.core.cluster import Cluster, NodeGroup

UNIT = 10.0


def one_gpu(length_s: float, submit_s: float = 0.0) -> Row:
    return Row(1, length_s, submit_s)


def runs(story: Story, job: int) -> list[tuple[float, float]]:
    """Returns from when to when a job ran."""
    stops = [t for t, _ in story.stops(job)] + [story.finishes[job]]
    return list(zip([t for t, _ in story.starts(job)], stops, strict=True))


def test_units_outlive_the_node_they_were_run_on() -> None:
    # 0 to 10: jobs 0 and 1, on a node each. From 10 on job 2, which has no unit, and 0: both of
    # one unit, by id. At 15 node 0 goes and with it 0: it has one unit as before and stands
    # behind 1, which has one too and waits since 10. At 16 the node is back, for 1.
    rows = [one_gpu(100), one_gpu(100), one_gpu(100)]
    lost = [(15.0, [(0, "down")]), (16.0, [(0, "up")])]
    story = play(rows, f"afs-p:unit-s={UNIT}", "2x1", capacity=lost)
    assert story.stops(0)[0] == (15.0, "node down")
    assert runs(story, 0)[:2] == [(0.0, 15.0), (20.0, 30.0)]
    assert runs(story, 1)[:2] == [(0.0, 10.0), (16.0, 26.0)]
    assert runs(story, 2)[0] == (10.0, 20.0)


def test_units_count_on_when_a_crowd_has_gone_and_another_comes() -> None:
    # Units: at 10 jobs 0 and 1 have one each; 2 and 0 run. At 20 job 0 has two, 2 has one; 1 and
    # 2 run. At 25 job 2 ends and all fit: units (not counters) are cancelled, 0 runs beside 1.
    # At 30 job 3 comes: 0 and 1 run a unit, until 40; then they have three and two. So 3 runs,
    # and 1: it has fewer, though 0 has the smaller id.
    rows = [one_gpu(100), one_gpu(100), one_gpu(15), one_gpu(100, 30.0)]
    story = play(rows, f"afs-p:unit-s={UNIT}", "1x2")
    assert story.finishes[2] == 25.0
    assert runs(story, 0)[:2] == [(0.0, 20.0), (25.0, 40.0)]
    assert runs(story, 1)[:2] == [(0.0, 10.0), (20.0, 50.0)]
    assert runs(story, 3)[0][0] == 40.0


def test_as_a_crowd_begins_who_waits_longest_comes_first() -> None:
    # Three GPUs of four: the gang of four that comes at 1 cannot run. At 5 there are two, and
    # the gang of three is evicted. At 10 there are four: either can run, but not both. Job 1 has
    # waited since 1, job 0 since 5; neither has run a unit.
    rows = [Row(3, 100), Row(4, 100, 1.0)]
    nodes = [(0.0, [(3, "down")]), (5.0, [(2, "down")]), (10.0, [(2, "up"), (3, "up")])]
    story = play(rows, f"afs-p:unit-s={UNIT}", "4x1", capacity=nodes)
    assert story.stops(0)[0] == (5.0, "node down")
    assert runs(story, 1)[0] == (10.0, 20.0)
    assert runs(story, 0)[:2] == [(0.0, 5.0), (20.0, 30.0)]


def test_a_gang_whose_turn_has_come_is_not_passed_over_by_jobs_that_keep_coming() -> None:
    # Two GPUs. The gang of two comes at 10; from 350 on one GPU is free, and jobs of one GPU come
    # faster than the gang could ever find two free by chance. It starts when job 0 is over.
    later = [one_gpu(240, 20.0 + 130.0 * i) for i in range(25)]
    for policy in ("afs-p", "afs-s"):
        story = play([one_gpu(600), one_gpu(350), Row(2, 300, 10.0), *later], policy, "1x2")
        assert runs(story, 2) == [(600.0, 900.0)]
        # Meanwhile the free GPU was not idle: job 3 was over on it, and job 4 gave it back.
        assert runs(story, 3) == [(350.0, 590.0)]
        assert story.starts(4)[0] == (590.0, "start")
        assert story.stops(4) == [(600.0, "preempted")]


def test_whoever_gives_reserved_gpus_back_has_not_used_up_a_unit() -> None:
    # The crowd begins at 1 with the gang 2. At 4 job 1 is over, and 3 runs beside 0 on a GPU
    # reserved for the gang. At 7 the unit of 0 is over and the gang starts. At 13 that has run
    # its unit: 3 still has none and stands where it stood, before 4 and 5.
    rows = [one_gpu(30), one_gpu(4), Row(2, 30, 1.0), one_gpu(30, 2.0)]
    rows += [one_gpu(30, 5.0), one_gpu(30, 5.0)]
    story = play(rows, "afs-p:unit-s=6", "1x2")
    assert runs(story, 3)[0] == (4.0, 7.0)
    assert story.starts(2)[0] == (7.0, "start")
    assert [story.starts(j)[0][0] for j in (4, 5)] == [13.0, 19.0]
    assert story.starts(3)[1] == (13.0, "resume")


def test_gpus_of_one_type_are_reserved_where_only_those_are_too_few() -> None:
    # Node 0 has two GPUs of type a, node 1 two of type b. The gang 2 waits for type a while jobs
    # of that type keep coming; those of type b are not concerned.
    cluster = Cluster((NodeGroup("x", 1, 2, "a"), NodeGroup("y", 1, 2, "b")))
    rows = [Row(1, 60, gpu_type="a"), Row(1, 35, gpu_type="a"), Row(2, 30, 1.0, gpu_type="a")]
    rows += [Row(1, 24, 2.0 + 13.0 * i, gpu_type="a") for i in range(12)]
    rows += [Row(1, 500, 160.0, gpu_type="b")]
    story = play(rows, "afs-p", cluster)
    assert story.starts(2)[0] == (60.0, "start")
    assert runs(story, 15) == [(160.0, 660.0)]
