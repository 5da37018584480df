"""Who is on a GPU: workers of gangs and strays, and those that are taken for both."""

from dovetail.live.gangs.floor import Floor

HERE = (0, 1)


def test_a_stray_that_turns_out_to_be_of_its_gang_is_there_until_it_is_neither() -> None:
    """Its start is heard before the inventory of a node that was down says whose it is."""
    floor = Floor()
    floor.add_stray((2, 0), *HERE)
    floor.put(2, {0: HERE}, {0: 0})
    floor.drop_stray((2, 0))
    assert not floor.is_vacant(*HERE)
    floor.put(2, {}, {})
    assert floor.is_vacant(*HERE)


def test_a_worker_that_its_gang_forgets_is_there_while_it_is_a_stray() -> None:
    floor = Floor()
    floor.put(2, {0: HERE}, {0: 0})
    floor.add_stray((2, 0), *HERE)
    floor.put(2, {}, {})
    assert not floor.is_vacant(*HERE)
    floor.drop_stray((2, 0))
    assert floor.is_vacant(*HERE)
