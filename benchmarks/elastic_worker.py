"""The job that `benchmarks.elastic` measures; a worker of it, started by a rehearsal.

Parameters and their optimizer's state are real and as large as asked for; computing is a sleep
per sample, as on a GPU that leaves the CPU alone. It writes down when each step ended, and when
each phase of its own start was over.
"""

import time

BEGAN_S = time.time()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

from dovetail.train import Job  # noqa: E402
from dovetail.train.membership.membership import Membership, MemberState  # noqa: E402

IMPORTED_S = time.time()


class Large(nn.Module):
    """A model that is its parameters, in tensors of 2 MB at most."""

    def __init__(self, parameter_bytes: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        count = max(1, int(parameter_bytes // 4))
        sizes = [1 << 19] * (count >> 19) + [count % (1 << 19)]
        self.parts = nn.ParameterList(torch.rand(n) for n in sizes if n)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Touches every parameter once."""
        return sum((p.mean() for p in self.parts), torch.zeros(())) * x.mean()


def send_before_training() -> None:
    """Makes all workers wait at a switch until joiners have the whole state."""
    compare = Membership._compare_states

    def compare_as_if_new(self: Membership, step: int, trained: bool) -> list[MemberState]:
        return compare(self, step, False)

    Membership._compare_states = compare_as_if_new  # type: ignore[method-assign]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=2.0)
    parser.add_argument("--sample-s", type=float, default=0.001)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--start-s", type=float, default=0.0)
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args(words)
    began_s, imported_s = (BEGAN_S, IMPORTED_S) if words is None else (time.time(),) * 2
    torch.set_num_threads(1)
    if options.at_once:
        send_before_training()
    time.sleep(options.start_s)  # for imports and a GPU's context, in a worker that was forked
    model = Large(options.megabytes * 1e6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = (torch.ones(options.samples, 1),)
    job = Job(model, optimizer, data=data, batch_size=options.batch_size)
    built_s = time.time()
    name = os.environ["DOVETAIL_WORKER"].rpartition("/")[2]
    with (options.log / f"{name}.jsonl").open("w", buffering=1) as log:

        def note(**said: float) -> None:
            log.write(json.dumps(said) + "\n")

        note(began_s=began_s, imported_s=imported_s, built_s=built_s)
        started_s = time.time()
        for (x,) in job.batches():
            before = job.steps_done
            time.sleep(options.sample_s * len(x))
            job.backward(model(x))
            job.step()
            if job.steps_done > before:
                ended_s = time.time()
                note(step=job.steps_done, samples=job.samples_done, from_s=started_s, to_s=ended_s)
                started_s = ended_s


if __name__ == "__main__":
    main()
