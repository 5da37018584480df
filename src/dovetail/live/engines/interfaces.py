"""The network interface that has an address, for libraries that ask for its name.

Without a name gloo takes the address of the host name, which on Debian is 127.0.1.1, and NCCL the
first interface that it likes: on a host with several, perhaps one that other nodes cannot reach.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from dovetail.live.node.rendezvous_addresses import LOOPBACK

IPV6_TABLE = Path("/proc/net/if_inet6")
SIOCGIFCONF = 0x8912
"""See netdevice(7): lists the IPv4 addresses of all interfaces, secondary ones included."""
ENTRY_BYTES, ENTRIES_MAX = 40, 1024
"""The size of C's `struct ifreq` on 64-bit Linux; a name of 16 bytes, then a `sockaddr_in`."""
LOOPBACK_NAME = "lo"


def interface_variables(host: str) -> dict[str, str]:
    """Returns what tells gloo and NCCL the interface of an address; nothing on a single machine."""
    name = "" if host == LOOPBACK else interface_of(host)
    # Without "=" NCCL would also take interfaces whose names begin like this one.
    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"} if name else {}


def interface_of(host: str) -> str:
    """Returns the name of the interface that has an address; "" if none has."""
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    if address.is_loopback:
        # All of 127.0.0.0/8 reaches it, though it has but one of these addresses.
        return LOOPBACK_NAME
    known = ipv4_interfaces() if address.version == 4 else ipv6_interfaces()
    return known.get(address.packed, "")


def ipv4_interfaces() -> Mapping[bytes, str]:
    """Returns the name of the interface of each IPv4 address of this machine."""
    import array

    buffer = array.array("B", bytes(ENTRY_BYTES * ENTRIES_MAX))
    where, length = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFCONF, struct.pack("iP", length, where))
    used: int = struct.unpack("iP", answer)[0]
    found = {}
    for at in range(0, used, ENTRY_BYTES):
        entry = buffer[at : at + ENTRY_BYTES].tobytes()
        # A secondary address has a label: eth0:1 is on eth0.
        label = entry[:16].split(b"\0")[0].decode("ascii", "replace")
        found[entry[20:24]] = label.partition(":")[0]
    return found


def ipv6_interfaces(table: Path = IPV6_TABLE) -> Mapping[bytes, str]:
    """Returns the name of the interface of each IPv6 address of this machine."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = [line.split() for line in lines]
    return {bytes.fromhex(f[0]): f[-1] for f in fields if len(f) == 6}
