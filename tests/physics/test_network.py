import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.cluster import DEFAULT_LINKS, Link
from dovetail.core.errors import InputError
from dovetail.physics.speed.network import Network, RingLink

RACKED = (
    Link("node", 12e9, 5e-6, nodes=1),
    Link("rack", 5e9, 1e-5, nodes=4),
    Link("fabric", 1.25e9, 3e-5),
)


def test_a_ring_takes_two_passes_over_its_slowest_link() -> None:
    # 4 workers, 100 MB: 6 hops of 10 us, and 2*3/4 of the bytes at 1 GB/s.
    assert RingLink(1e-5, 1e9).all_reduce_s(4, 1e8) == pytest.approx(6e-5 + 0.15)


def test_one_worker_exchanges_nothing() -> None:
    assert RingLink(1e-5, 1e9).all_reduce_s(1, 1e8) == 0
    assert Network.of(DEFAULT_LINKS).comm_s((1,), 1e8) == 0


def test_leaving_the_node_meets_the_fabric() -> None:
    network = Network.of(DEFAULT_LINKS)

    assert network.within == RingLink(5e-6, 12e9)
    assert network.across == RingLink(3e-5, 1.25e9)
    assert network.comm_s((4,), 1e8) == pytest.approx(6 * 5e-6 + 1.5 * 1e8 / 12e9)
    assert network.comm_s((2, 2), 1e8) == pytest.approx(6 * 3e-5 + 1.5 * 1e8 / 1.25e9)


def test_exactly_two_nodes_may_have_a_ring_of_their_own() -> None:
    network = Network(RingLink(0, 9e9), RingLink(0, 3e9), RingLink(0, 1e9))

    assert network.ring((4,)) == RingLink(0, 9e9)
    assert network.ring((4, 4)) == RingLink(0, 1e9)
    assert network.ring((4, 4, 4)) == RingLink(0, 3e9)


def test_a_ring_across_nodes_passes_the_slowest_level_of_the_tree() -> None:
    network = Network.of(RACKED)
    assert network.within == RingLink(5e-6, 12e9)
    assert network.across == RingLink(3e-5, 1.25e9)


def test_a_tree_without_a_level_between_nodes_is_refused() -> None:
    with pytest.raises(InputError, match="between nodes"):
        Network.of(RACKED[:1])


def test_a_link_without_bandwidth_is_refused() -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        RingLink(0, 0)


@given(
    gpus=st.integers(2, 64),
    size=st.floats(1, 1e10),
    inside=st.floats(1e9, 1e12),
    slower=st.floats(1, 100),
)
def test_more_nodes_are_never_faster_when_the_network_is_slower(
    gpus: int, size: float, inside: float, slower: float
) -> None:
    network = Network(RingLink(1e-6, inside), RingLink(1e-6 * slower, inside / slower))

    together = network.comm_s((gpus,), size)
    apart = network.comm_s((gpus - 1, 1), size)

    assert apart >= together * (1 - 1e-12)
