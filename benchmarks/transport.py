"""Lines over TLS, as agents and the gate speak, beside gRPC with certificates on both sides.

    python -m benchmarks.transport [--connections 1,100] [--rounds 300] [--bytes 400] [--repeats 3]

A server sends a line on each connection and waits until all are echoed, round by round, as a
controller that asks its nodes. CPU time is that of the server's process, from the first round on,
so the handshakes do not count. gRPC is `grpc.aio` with one stream for each connection, keep-alive
pings every 2 s, and TLS certificates of both sides; without grpcio (`pip install grpcio`) it is
left out. The lines run through the code of the gate: GateStream, LineChannel, EventLoop.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import selectors
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.control_plane import percentile, resident_mib
from dovetail.live.join.gate_stream import called, keep_alive, served
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.node.transport import EventLoop, LineChannel

if TYPE_CHECKING:
    from grpc.aio import ServicerContext

SPAWN = multiprocessing.get_context("spawn")
HOST = "127.0.0.1"
METHOD = "/dovetail/link"


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: so many rounds of a line of so many bytes on each connection."""

    connections: int
    rounds: int
    line_bytes: int

    @property
    def line(self) -> bytes:
        """Returns the line without its end."""
        return b"x" * self.line_bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """What a server used for each round trip, how long they took, and what both sides came to hold.

    The memory is that beyond what the process held before its connections, and before grpc.
    """

    cpu_us: float
    p50_ms: float
    p99_ms: float
    server_mib: float
    client_mib: float = 0.0


@dataclass
class Rounds:
    """The clock of one server."""

    load: Load
    before_mib: float
    took_s: list[float] = field(default_factory=list)
    _began_s: float = 0.0
    _cpu_s: float = -1.0

    def begin(self) -> None:
        """Notes that a round begins."""
        if self._cpu_s < 0:
            self._cpu_s = time.process_time()
        self._began_s = time.perf_counter()

    def echoed(self) -> None:
        """Notes that an echo has come."""
        self.took_s.append(time.perf_counter() - self._began_s)

    @property
    def is_over(self) -> bool:
        """Returns whether all echoes of the rounds up to now have come."""
        return len(self.took_s) % self.load.connections == 0

    def cost(self) -> Cost:
        """Returns what all rounds cost."""
        cpu_us = 1e6 * (time.process_time() - self._cpu_s) / len(self.took_s)
        p50_ms, p99_ms = (percentile(self.took_s, part) for part in (0.5, 0.99))
        return Cost(cpu_us, p50_ms, p99_ms, held_mib() - self.before_mib)


def held_mib() -> float:
    """Returns the memory that this process holds."""
    return resident_mib(os.getpid())


# Lines over TLS.


def serve_lines(folder: Path, load: Load, pipe: Connection) -> None:
    """Sends lines over TLS connections that come in."""
    loop, rounds = EventLoop(), Rounds(load, held_mib())
    tls = ControllerIdentity.of(folder).tls()
    listener = socket.create_server((HOST, 0), backlog=load.connections)
    pipe.send(listener.getsockname()[1])
    channels, greeted = list[LineChannel](), [0]

    def hear(line: bytes) -> None:
        if line:
            rounds.echoed()
        else:
            greeted[0] += 1

    def accept(events: int) -> None:
        link, _ = listener.accept()
        keep_alive(link)
        channels.append(LineChannel(loop, served(link, tls), hear, lambda: None))

    loop.watch(listener, selectors.EVENT_READ, accept)
    while greeted[0] < load.connections:
        loop.wait(0.1)
    for _ in range(load.rounds):
        rounds.begin()
        for channel in channels:
            channel.send(load.line + b"\n")
        loop.wait(1.0)
        while not rounds.is_over:
            loop.wait(1.0)
    pipe.send(rounds.cost())


def echo_lines(folder: Path, port: int, load: Load, pipe: Connection) -> None:
    """Echoes what comes on TLS connections until the server is gone."""
    before_mib, held = held_mib(), 0.0
    loop, open_ones = EventLoop(), set[int]()
    fingerprint = ControllerIdentity.of(folder).fingerprint

    def call(number: int) -> None:
        channel = LineChannel(
            loop,
            called(HOST, port, fingerprint, 30.0),
            lambda line: channel.send(line + b"\n"),
            partial(open_ones.discard, number),
        )
        open_ones.add(number)
        channel.send(b"\n")

    for number in range(load.connections):
        call(number)
    while open_ones:
        held = max(held, held_mib() - before_mib)
        loop.wait(1.0)
    pipe.send(held)


# gRPC.


def options(folder: Path) -> list[tuple[str, object]]:
    """Returns the settings of both sides: keep-alive, and whose certificate it is."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    name = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    return [
        ("grpc.keepalive_time_ms", 2000),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.ssl_target_name_override", name),
    ]


def serve_grpc(folder: Path, load: Load, pipe: Connection) -> None:
    """Sends messages on the streams of gRPC clients."""
    asyncio.run(_serve_grpc(folder, load, pipe))


async def _serve_grpc(folder: Path, load: Load, pipe: Connection) -> None:
    rounds, queues = Rounds(load, held_mib()), list[asyncio.Queue[bytes]]()
    import grpc
    from grpc import aio

    all_came, all_echoed = asyncio.Event(), asyncio.Event()

    async def link(echoes: AsyncIterator[bytes], context: ServicerContext[bytes, bytes]) -> None:
        queue = asyncio.Queue[bytes]()
        queues.append(queue)
        if len(queues) == load.connections:
            all_came.set()

        async def hear() -> None:
            async for _ in echoes:
                rounds.echoed()
                if rounds.is_over:
                    all_echoed.set()

        hearing = asyncio.create_task(hear())
        while message := await queue.get():
            await context.write(message)
        hearing.cancel()

    server = aio.server(options=options(folder))
    handler = grpc.stream_stream_rpc_method_handler(link, bytes, bytes)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("dovetail", {"link": handler}),)
    )
    certificate, key = (folder / "cert.pem").read_bytes(), (folder / "key.pem").read_bytes()
    word = grpc.ssl_server_credentials([(key, certificate)], certificate, True)
    pipe.send(server.add_secure_port(f"{HOST}:0", word))
    await server.start()
    await all_came.wait()
    for _ in range(load.rounds):
        all_echoed.clear()
        rounds.begin()
        for queue in queues:
            queue.put_nowait(load.line)
        await all_echoed.wait()
    pipe.send(rounds.cost())
    for queue in queues:
        queue.put_nowait(b"")
    await server.stop(1.0)


def echo_grpc(folder: Path, port: int, load: Load, pipe: Connection) -> None:
    """Echoes what comes on gRPC streams until the server is gone."""
    asyncio.run(_echo_grpc(folder, port, load, pipe))


async def _echo_grpc(folder: Path, port: int, load: Load, pipe: Connection) -> None:
    before_mib = held_mib()
    import grpc
    from grpc import aio

    certificate, key = (folder / "cert.pem").read_bytes(), (folder / "key.pem").read_bytes()
    word = grpc.ssl_channel_credentials(certificate, key, certificate)

    async def one() -> None:
        async with aio.secure_channel(f"{HOST}:{port}", word, options=options(folder)) as channel:
            call = channel.stream_stream(METHOD, bytes, bytes)()
            try:
                async for message in call:
                    await call.write(message)
            except aio.AioRpcError:
                return

    await asyncio.gather(*(one() for _ in range(load.connections)))
    pipe.send(held_mib() - before_mib)


# Both.

Side = Callable[[Path, Load, Connection], None]
WAYS = {"lines over TLS": (serve_lines, echo_lines), "grpc.aio, mTLS": (serve_grpc, echo_grpc)}


def measure(way: str, folder: Path, load: Load) -> Cost:
    """Returns what one way costs, with each side in a process of its own."""
    serve, echo = WAYS[way]
    here, there = SPAWN.Pipe()
    server = SPAWN.Process(target=serve, args=(folder, load, there))
    server.start()
    port = here.recv()
    near, far = SPAWN.Pipe()
    client = SPAWN.Process(target=echo, args=(folder, port, load, far))
    client.start()
    cost = here.recv()
    server.join()
    client_mib = near.recv()
    client.join()
    return Cost(cost.cpu_us, cost.p50_ms, cost.p99_ms, cost.server_mib, client_mib)


def main() -> None:
    """Prints a table of both ways; the median of some repeats, which take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", default="1,100")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--bytes", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    has_grpc = find_spec("grpc") is not None
    if not has_grpc:
        print("gRPC is left out: the package grpcio is not installed")
    ways = list(WAYS) if has_grpc else list(WAYS)[:1]
    print(f"lines of {given.bytes} bytes; load {os.getloadavg()[0]:.1f}")
    print("| connections | way | server CPU, us | p50, ms | p99, ms | server, MiB | clients, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="dvt-") as text:
        folder = Path(text)
        ControllerIdentity.of(folder)
        for connections in map(int, given.connections.split(",")):
            load = Load(connections, given.rounds, given.bytes)
            costs: dict[str, list[Cost]] = {way: [] for way in ways}
            for _ in range(given.repeats):
                for way in ways:
                    costs[way].append(measure(way, folder, load))
            for way, all_costs in costs.items():
                fields = ("cpu_us", "p50_ms", "p99_ms", "server_mib", "client_mib")
                cells = [median(getattr(cost, name) for cost in all_costs) for name in fields]
                cpu, p50, p99, server, client = cells
                print(
                    f"| {connections} | {way} | {cpu:.0f} | {p50:.2f} | {p99:.2f} | {server:.0f} |"
                    f" {client:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
