"""Hand-written parts beside the libraries that could take their place.

    python -m benchmarks.libraries [--only messages|json-list|checkpoint|imports] [--megabytes 100]

Needs `pip install msgspec ijson`, which Dovetail does not depend on. Times are CPU time, the least
of several repetitions. `benchmarks.torchft_switches` compares elastic training with torchft.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from subprocess import Popen

from dovetail.wire.worker import FROM_WORKER, TO_WORKER, Regroup, Training

COMMANDS = {
    "click, json": "pass",
    "with msgspec": "import msgspec",
    "with ijson": "import ijson",
    "with rich's tables": "import rich.table, rich.console",
    "with ours": "import dovetail.cli.terminal",
}


def least_us(call: Callable[[], object], times: int = 2000) -> float:
    """Returns microseconds of a call."""
    took_s = []
    for _ in range(7):
        began_s = time.process_time()
        for _ in range(times):
            call()
        took_s.append(time.process_time() - began_s)
    return min(took_s) / times * 1e6


def struct_of(message: object) -> object:
    """Returns a flat message as a msgspec Struct that refuses what our codec refuses."""
    from msgspec import defstruct

    named = [(f.name, f.type, f.default) for f in fields(message)]  # type: ignore[arg-type]
    types = sys.modules[type(message).__module__].__dict__
    cls = defstruct(
        type(message).__name__,
        [(name, eval(str(kind), types), default) for name, kind, default in named],
        frozen=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        tag_field="m",
        tag=True,
    )
    return cls(**{name: getattr(message, name) for name, *_ in named})


def messages() -> None:
    from msgspec.json import Decoder, Encoder

    print("µs\n| message | ours out, in | msgspec Struct out, in |\n" + "| --- " * 3 + "|")
    report = Training(7, 12345, 987654, 321.5, 0.25, stage_s=(0.1, 0.2, 0.3, 0.4), loss=1.25)
    order = Regroup(6, tuple(range(8)), 2, (3,) * 8)
    for codec, message in ((FROM_WORKER, report), (TO_WORKER, order)):
        ours, twin = codec.encode(message), struct_of(message)
        encoder, decoder = Encoder(), Decoder(type(twin))
        theirs = encoder.encode(twin)
        took_us = (
            least_us(lambda: codec.encode(message)),  # noqa: B023
            least_us(lambda: codec.decode(ours)),  # noqa: B023
            least_us(lambda: encoder.encode(twin)),  # noqa: B023
            least_us(lambda: decoder.decode(theirs)),  # noqa: B023
        )
        cells = "{:.1f}, {:.1f} | {:.1f}, {:.1f}".format(*took_us)
        print(f"| {type(message).__name__} | {cells} |", flush=True)


def json_list(entries: int = 60_000) -> None:
    from ijson import backend_name, items

    from dovetail.traces.json_list import json_entries

    attempt = {"start_time": "2017-10-09 07:01:04", "end_time": "2017-10-09 08:01:04"}
    attempt |= {"detail": [{"ip": "m17", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3"]}]}
    job = {"status": "Pass", "vc": "6214e9", "jobid": "application_1", "attempts": [attempt] * 2}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.json"
        path.write_text(json.dumps([job] * entries, indent=1))

        def theirs() -> int:
            with path.open("rb") as file:
                return sum(1 for _ in items(file, "item", use_float=True))

        print(f"\n{entries:,} entries of a list, {path.stat().st_size / 1e6:.0f} MB")
        ours_s = least_us(lambda: sum(1 for _ in json_entries(path)), 1) / 1e6
        print(f"ours {ours_s:.2f} s, ijson ({backend_name}) {least_us(theirs, 1) / 1e6:.2f} s")


def checkpoint(megabytes: float, rounds: int = 5) -> None:
    """Times what the training loop waits for, and the whole save, with all on disk at its end."""
    import torch
    import torch.distributed.checkpoint as dcp

    from benchmarks.elastic_worker import Large
    from dovetail.train.state.checkpoint import TrainingPosition, restore, snapshot, write
    from dovetail.train.state.state import TrainingState

    torch.set_num_threads(1)
    model = Large(megabytes * 1e6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model(torch.ones(1, 1)).backward()
    optimizer.step()
    parts = TrainingState.of(model, optimizer, {}, {})
    took_s: dict[str, list[float]] = {}

    def timed(what: str, call: Callable[[], object]) -> object:
        began_s = time.perf_counter()
        result = call()
        took_s.setdefault(what, []).append(time.perf_counter() - began_s)
        return result

    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, rounds + 1):
            ours, theirs = Path(folder) / "ours", Path(folder) / f"theirs{step}"
            progress = TrainingPosition(step, known=True)
            state = timed("ours, copy", lambda: snapshot(parts, progress, {}))  # noqa: B023
            timed("ours, write", lambda: write(ours, step, state))  # type: ignore[arg-type] # noqa: B023
            timed("ours, read", lambda: restore(ours, parts, {}))  # noqa: B023
            whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            writer = dcp.FileSystemWriter(theirs, sync_files=True)
            timed("torch's, write", lambda: dcp.save(whole, storage_writer=writer))  # noqa: B023
            timed("torch's, read", lambda: dcp.load(whole, checkpoint_id=theirs))  # noqa: B023
    print(f"\nCheckpoints of {megabytes:g} MB of parameters under AdamW; median, least, ms")
    for what, values in took_s.items():
        print(f"| {what} | {1e3 * statistics.median(values):.0f} | {1e3 * min(values):.0f} |")


def imports(times: int = 15) -> None:
    print("\nCPU time of a Python that imports this, least of several, ms")
    for name, words in COMMANDS.items():
        took_s = []
        for _ in range(times):
            code = f"import click, json, dataclasses, typing\n{words}"
            child = Popen([sys.executable, "-c", code])
            _, _, usage = os.wait4(child.pid, 0)
            child.returncode = 0
            took_s.append(usage.ru_utime + usage.ru_stime)
        print(f"| {name} | {1e3 * min(took_s):.0f} |", flush=True)


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "messages": messages,
        "json-list": json_list,
        "imports": imports,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=(*parts, "checkpoint"))
    parser.add_argument("--megabytes", type=float, default=100.0)
    options = parser.parse_args()
    parts["checkpoint"] = lambda: checkpoint(options.megabytes)
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main()
