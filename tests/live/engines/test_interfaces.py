"""The interface of an address, as gloo and NCCL want to be told."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from dovetail.live.engines.interfaces import (
    interface_of,
    interface_variables,
    ipv4_interfaces,
    ipv6_interfaces,
)


def test_on_one_machine_nothing_is_said_and_other_loopback_addresses_are_of_lo() -> None:
    assert interface_variables("127.0.0.1") == {}
    said = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}
    assert interface_variables("127.0.0.3") == said


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "a-name", ""])
def test_an_address_of_another_machine_has_no_interface_here(host: str) -> None:
    assert interface_of(host) == "" and interface_variables(host) == {}


def test_every_address_of_this_machine_has_the_interface_that_the_kernel_says() -> None:
    try:
        told = subprocess.run(["ip", "-j", "addr"], capture_output=True, check=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("needs iproute2")
    found = 0
    for row in json.loads(told.stdout):
        for address in row["addr_info"]:
            if row["ifname"] != "lo":
                assert interface_of(address["local"]) == row["ifname"]
                found += 1
    assert ipv4_interfaces()[socket.inet_aton("127.0.0.1")] == "lo"
    assert found or len(ipv4_interfaces()) == 1


def test_addresses_of_ipv6_are_read_from_the_kernels_table(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "20010db8000000000000000000000007 02 40 00 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    known = ipv6_interfaces(table)
    assert known[socket.inet_pton(socket.AF_INET6, "2001:db8::7")] == "eth0"
    assert ipv6_interfaces(tmp_path / "none") == {}
