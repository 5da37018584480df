"""Who is on a GPU: workers of gangs and unknown ones, and those that are taken for both."""

from dovetail.live.workers.gpu_usage import GpuUsage

HERE = (0, 1)


def test_an_unknown_worker_that_turns_out_to_be_of_its_gang_is_there_until_it_is_neither() -> None:
    """Its start is heard before the inventory of a node that was down says whose it is."""
    floor = GpuUsage()
    floor.add_unknown((2, 0), 0, (1,))
    floor.update(2, {0: (HERE,)}, {0: 0})
    floor.drop_unknown((2, 0))
    assert not floor.is_vacant(*HERE)
    floor.update(2, {}, {})
    assert floor.is_vacant(*HERE)


def test_a_worker_that_its_gang_forgets_is_there_while_it_is_an_unknown_worker() -> None:
    floor = GpuUsage()
    floor.update(2, {0: (HERE,)}, {0: 0})
    floor.add_unknown((2, 0), 0, (1,))
    floor.update(2, {}, {})
    assert not floor.is_vacant(*HERE)
    floor.drop_unknown((2, 0))
    assert floor.is_vacant(*HERE)


def test_a_worker_holds_all_of_its_gpus_until_it_is_gone() -> None:
    floor, both = GpuUsage(), ((0, 0), (0, 1))
    floor.update(2, {0: both}, {0: 0})
    assert not any(floor.is_vacant(*gpu) for gpu in both)
    floor.changed = False
    floor.update(2, {}, {})
    assert floor.changed and all(floor.is_vacant(*gpu) for gpu in both)


def test_an_unknown_worker_holds_all_of_its_gpus_until_it_is_gone() -> None:
    floor = GpuUsage()
    floor.add_unknown((2, 0), 0, (0, 1))
    assert floor.jobs_on(0, 2) == [2]
    assert not floor.is_vacant(0, 0) and not floor.is_vacant(0, 1)
    floor.drop_unknown((2, 0))
    assert floor.is_vacant(0, 0) and floor.is_vacant(0, 1)
