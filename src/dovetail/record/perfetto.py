"""Perfetto's native trace format, as few of its words as a timeline needs, in plain bytes.

A trace is a row of length-delimited `TracePacket`s (protobuf wire format). The field numbers
are those of Perfetto's public `perfetto_trace.proto`; writing these few by hand saves a
run-time dependency on protobuf. This file knows nothing of jobs or nodes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Value = int | float | str

_BY_RANK = 3
_VARINT, _FIXED64, _BYTES = 0, 1, 2
# Every packet belongs to writer 1 and needs the interned names that its first packet carries.
_SEQUENCE = b"\x50\x01\x68\x02"
_FIRST_ON_SEQUENCE = b"\x50\x01\x68\x01"


def varint(value: int) -> bytes:
    """Returns an unsigned number of up to 64 bits, seven bits a byte (negatives wrap round)."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([i]) for i in range(128)]


def number(field: int, value: int) -> bytes:
    """Returns a field that holds a whole number."""
    return varint(field << 3 | _VARINT) + varint(value)


def real(field: int, value: float) -> bytes:
    """Returns a field that holds a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def block(field: int, body: bytes) -> bytes:
    """Returns a field that holds bytes: a text or a nested message."""
    return varint(field << 3 | _BYTES) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """Returns a field that holds a text; lone surrogates become question marks."""
    return block(field, value.encode("utf-8", "replace"))


def packet(body: bytes) -> bytes:
    """Returns one packet of the trace."""
    return b"\x0a" + varint(len(body)) + body


class Names:
    """Texts that many events share, written once: annotation names, values and categories."""

    def __init__(self, names: Sequence[str], values: Sequence[str], kinds: Sequence[str]) -> None:
        self.names = {name: i for i, name in enumerate(names, 1)}
        self.values = {value: i for i, value in enumerate(values, 1)}
        self.kinds = {kind: i for i, kind in enumerate(kinds, 1)}

    def packet(self) -> bytes:
        """Returns the packet that opens the trace and introduces every name."""
        # InternedData: event_categories 1, debug_annotation_names 3, string_values 29 (as bytes).
        tables = ((1, self.kinds), (3, self.names), (29, self.values))
        body = b"".join(
            block(field, number(1, iid) + text(2, name))
            for field, table in tables
            for name, iid in table.items()
        )
        return packet(_FIRST_ON_SEQUENCE + block(12, body))

    def arguments(self, values: Mapping[str, Value]) -> bytes:
        """Returns the debug annotations of an event; a text known here is sent by number."""
        return b"".join(
            block(4, number(1, self.names[name]) + self._value(value))
            for name, value in values.items()
        )

    def _value(self, value: Value) -> bytes:
        if isinstance(value, str):
            known = self.values.get(value)
            return text(6, value) if known is None else number(17, known)
        return number(4, value) if isinstance(value, int) else real(5, value)

    def slice_body(self, name: str, kind: str, values: Mapping[str, Value]) -> bytes:
        """Returns what all the slices of one stay have in common: name, kind and arguments."""
        return number(3, self.kinds[kind]) + text(23, name) + self.arguments(values)


def group_track(uuid: int, name: str, rank: int) -> bytes:
    """Returns the packet that makes a group of tracks, which lie in it by their rank."""
    body = number(1, uuid) + text(2, name) + number(11, _BY_RANK) + number(12, rank)
    return packet(block(60, body) + _SEQUENCE)


def row_track(uuid: int, parent: int, name: str, rank: int) -> bytes:
    """Returns the packet that makes one row of slices in a group."""
    body = number(1, uuid) + number(5, parent) + text(2, name) + number(12, rank)
    return packet(block(60, body) + _SEQUENCE)


def counter_track(uuid: int, parent: int, name: str, unit: str, rank: int) -> bytes:
    """Returns the packet that makes a counter under its parent."""
    body = number(1, uuid) + number(5, parent) + text(2, name)
    body += block(8, text(6, unit)) + number(12, rank)
    return packet(block(60, body) + _SEQUENCE)


def slice_begin(at_ns: int, uuid: int, body: bytes) -> bytes:
    """Returns the packet that begins a slice."""
    event = b"\x48\x01\x58" + varint(uuid) + body
    return packet(b"\x40" + varint(at_ns) + block(11, event) + _SEQUENCE)


def slice_end(at_ns: int, uuid: int) -> bytes:
    """Returns the packet that ends the slice open on a track."""
    event = b"\x48\x02\x58" + varint(uuid)
    return packet(b"\x40" + varint(at_ns) + block(11, event) + _SEQUENCE)


def counter_value(at_ns: int, uuid: int, value: float) -> bytes:
    """Returns the packet that sets a counter, to a whole number or to a double."""
    amount = number(30, int(value)) if value == int(value) else real(44, value)
    event = b"\x48\x04\x58" + varint(uuid) + amount
    return packet(b"\x40" + varint(at_ns) + block(11, event) + _SEQUENCE)
