"""The command lines by which two checkouts are compared, and the folder that stores their results.

A run is one or more commands of one checkout. Its standard output, its standard error, its exit
codes and the files that it writes go to `FOLDER/PART/RUN/`. Commands run in FOLDER, and all paths
that they name are relative to it or the same for both checkouts, so that no result holds a path.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 900
STORED = "results.json"
FINISHES_NO_JOB = "no-op"
COARSE = {
    "gandiva": "gandiva:slice=1200",
    "gandiva-deadline": "gandiva-deadline:slice=1200",
    "gavel": "gavel:round=7200",
    "pollux": "pollux:interval=7200,population=10,generations=4",
    "themis": "themis:lease=14400",
}
"""Policies that decide every minute or search for long: fewer and shorter decisions."""
GENERATED, AFS = "traces/generated/generated.csv", "data/afs-models/afs_trace_2869ce.csv"
SHARED = "--cluster 4x4 --adopt elastic:0.5 --adopt shareable:0.5"
POOL = "--cluster 1x64 --placement none --switching none --physics counted --adopt elastic:1"
TURNS = (
    "--cluster 8x8/1T --placement strict,first-fit,repack --switching restart:30,prepared:10"
    " --adopt shareable:1 --cycle overlapped,no-contention,no-floor"
)
TYPED = (
    "--cluster 1x4:T4+2x4:G2+1x4:P100 --assign-models --adopt elastic:0.5 --adopt shareable:0.5"
    " --forecast noisy:0.3 --belief scaling:0.2,interference:0.2 --seed 3"
)
BY_HAND = {
    "case-14": "0,0,1,8\n1,0,2,4\n2,1,1,2\n",
    "reservation": "0,0,3,10\n1,0,4,5\n2,0,1,5\n3,6,1,4\n",
    "three-queues": "0,0,1,6\n1,0,1,6\n2,0,1,6\n3,7,2,3\n",
}
"""Traces of tests/golden: job, submission in s, GPUs, duration in s."""
RESIZING = "afs-p,afs-l,afs-s,max-min,optimus,srsf-e,srtf-e,srsf-max,srtf-max,tiresias-max,themis"
OPTIONS = (
    ("sjf", "--forecast limit"),
    ("backfill", "--forecast predicted"),
    ("srtf", "--forecast predicted:mean"),
    ("srsf", "--forecast noisy:0.5 --seed 5"),
    ("gittins", "--forecast unknown"),
    ("a-srpt", "--forecast predicted:forest"),
    ("afs-l", "--belief scaling:0.3 --seed 2"),
    ("sjf-bsbf", "--belief interference:0.3"),
    ("muri-s", "--belief stages:0.4"),
    ("muri-l", "--belief memory:0.3"),
    ("optimus", "--belief noisy:0.2"),
    ("afs-p", "--switching restart:30,prepared:10"),
    ("max-min", "--switching per-resize:10"),
    ("srtf", "--switching per-start:5"),
    ("muri-l", "--switching per-start:profile"),
    ("srtf", "--switching restart:60,one-by-one"),
    ("srtf-e", "--physics counted"),
    ("srtf-max", "--physics linear"),
    ("gandiva", "--interference 1.3"),
    ("muri-s", "--cycle barrier"),
    ("muri-s:ordering=best,matching=blossom,tick-s=0", "--cycle three-stages"),
    ("muri-l:merge-order=class,ties=gpus", "--placement strict,first-fit"),
    ("srtf", "--placement strict,best-fit,repack"),
    ("srsf", "--placement none,most-free,keep"),
    ("fifo:bypass=skip", "--cancelled clock"),
    ("sjf", "--without preempt,migrate"),
    ("srtf", "--coalesce-s 60 --warm-up-s 3600 --drain-s 3600"),
    ("tiresias:thresholds=3250/7200,inside=list", "--placement none"),
    ("gimbal:goal=makespan", "--placement prefer,first-fit"),
    ("pollux:population=20,generations=10,seed=1", ""),
)
"""One policy and what differs from the defaults; on the generated trace."""


@dataclass(frozen=True)
class Checkout:
    """A checkout and the Python that has its requirements, `dovetail` beside it."""

    root: Path
    python: Path

    @property
    def dovetail(self) -> Path:
        """The command, as installed."""
        return self.python.with_name("dovetail")


@dataclass(frozen=True)
class PlannedRun:
    """Commands one after the other. The first word is `dovetail` or `python`.

    `python` runs in the checkout, for the benchmarks. `exit_code` is that of each command.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    exit_code: int = 0


@dataclass(frozen=True)
class Part:
    """Runs that prove one thing; `title` counts them for a reader."""

    name: str
    title: str
    runs: tuple[PlannedRun, ...]


class BadInput(Exception):
    """What the caller can fix, as one sentence."""


def plan(policies: Sequence[str], data: Path) -> tuple[Part, ...]:
    """Returns all parts, the input traces first; `data` is the folder of public traces."""
    return (
        _traces(data),
        _policies(policies, data),
        _options(data),
        _golden([p for p in policies if p != FINISHES_NO_JOB]),
        _published(),
        _live([p for p in policies if p != FINISHES_NO_JOB]),
        _default(),
    )


def _run(name: str, *lines: str, exit_code: int = 0) -> PlannedRun:
    return PlannedRun(name, tuple(tuple(line.split()) for line in lines), exit_code)


def _traces(data: Path) -> Part:
    made = "dovetail trace generate {} --seed {} --jobs {} --days {} --cluster 4x4 -o {}"
    rich = " --load 0.9 --models afs --deadlines 0.5 --time-limits 0.3"
    sliced = "dovetail trace slice {} --jobs {} -o traces/{}/{}.csv"
    muri, itp = data / "data/muri/sim-traces/trace3.csv", "traces/itp/elasticflow/195job.csv.gz"
    typed = data / "traces/alibaba_gpu_v2023/openb_pod_list_gpuspec33.csv.gz"
    philly = data / "traces/format_samples/philly_cluster_job_log.sample.json"
    runs = [
        _run("generated", made.format("philly-like", 7, 150, 1, GENERATED) + rich),
        _run("muri", sliced.format(muri, 300, "muri", "muri")),
        _run("typed", sliced.format(typed, 300, "typed", "typed") + " --from-day 100"),
        _run("deadlines", sliced.format(data / itp, 100, "deadlines", "deadlines")),
        _run("imported", f"dovetail trace import {philly} -o traces/imported/imported.csv"),
        _run("described", f"dovetail trace describe {muri} --json"),
    ]
    for kind in ("pai-like", "poisson", "burst"):
        runs.append(_run(kind, made.format(kind, 3, 200, 2, f"traces/{kind}/{kind}.csv")))
    return Part("traces", f"{len(runs)} traces", tuple(runs))


def _policies(policies: Sequence[str], data: Path) -> Part:
    traces = {
        "generated": (GENERATED, SHARED),
        "afs": (str(data / AFS), POOL),
        "muri": ("traces/muri/muri.csv", TURNS),
        "typed": ("traces/typed/typed.csv", TYPED),
    }
    runs = []
    for name, (trace, options) in traces.items():
        for policy in policies:
            spelled = COARSE.get(policy, policy)
            if name == "generated" and policy != "pollux":
                spelled = policy
            line = _simulate("policies", f"{name}.{policy}", trace, spelled, options)
            runs.append(
                _run(f"{name}.{policy}", line, exit_code=1 if policy == FINISHES_NO_JOB else 0)
            )
    return Part("policies", f"{len(policies)} policies x {len(traces)} traces", tuple(runs))


def _simulate(part: str, name: str, trace: str, policy: str, options: str) -> str:
    out = f"{part}/{name}/out"
    if "--forecast" not in options:
        options += " --forecast known"
    return f"dovetail simulate {trace} -p {policy} {options} --no-bound --no-report -o {out}"


def _options(data: Path) -> Part:
    runs = []
    for number, (policy, options) in enumerate(OPTIONS):
        name = f"{number:02}.{policy.partition(':')[0]}"
        runs.append(
            _run(name, _simulate("options", name, GENERATED, policy, f"{SHARED} {options}"))
        )
    for policy in ("gandiva-deadline", "gavel"):
        name, trace = f"deadlines.{policy}", "traces/deadlines/deadlines.csv"
        line = _simulate(
            "options", name, trace, COARSE[policy], "--cluster 4x8 --adopt shareable:1"
        )
        runs.append(_run(name, line))
    simulated = f"dovetail simulate {GENERATED} -p srtf --cluster 4x4 --forecast known --json"
    simulated += " -o options/report/out"
    runs.append(_run("report", simulated, "dovetail replay options/report/out/events.jsonl --json"))
    return Part("options", f"{len(runs)} sets of options", tuple(runs))


def _golden(policies: Sequence[str]) -> Part:
    names = ",".join(policies)
    runs = []
    for trace in BY_HAND:
        for placement in ("strict", "prefer,first-fit,repack", "none"):
            name = f"{trace}.{placement.partition(',')[0]}"
            line = f"dovetail compare golden/{trace}.csv -p {names} --cluster 1x4 --processes 1"
            line += " --forecast known"
            out = f"golden/{name}/out"
            runs.append(_run(name, f"{line} --switching none --placement {placement} -o {out}"))
    return Part("golden", f"{len(policies)} policies x {len(runs)} scenes", tuple(runs))


def _published() -> Part:
    command = "python -m benchmarks.fidelity --json --only"
    runs = [
        PlannedRun(name, ((*command.split(), word),))
        for name, word in (("afs", "AFS"), ("muri", "Muri SR"), ("tiresias", "Muri Tiresias"))
    ]
    return Part("published", f"{len(runs)} tables of other simulators", tuple(runs))


def _live(policies: Sequence[str]) -> Part:
    command = "python -m benchmarks.live_fidelity --quick --real none --policies"
    runs = [
        _run(f"table-{number}", f"{command} {','.join(policies[number::4])}") for number in range(4)
    ]
    prepared = f"{command} {RESIZING} --seed 3 --switching restart:30,prepared:10"
    runs.append(_run("prepared", prepared))
    return Part("live", f"{len(policies)} policies, simulated and live", tuple(runs))


def _default() -> Part:
    bound = "dovetail bound traces/muri/muri.csv --cluster 8x8 --json --adopt shareable:1"
    seeds = (
        f"dovetail compare {GENERATED} -p srtf,afs-l --cluster 4x4 --adopt elastic:0.5 --seeds 2"
        " --forecast known"
    )
    runs = (
        _run("demo", "dovetail demo --processes 1 -o default/demo/out"),
        _run("seeds", f"{seeds} --processes 1 --json"),
        _run("bound", f"{bound}", f"{bound} --elastic --sharing --interleaving"),
    )
    return Part("default", "the demo, a comparison over seeds, bounds", runs)


def policies_of(checkout: Checkout) -> list[str]:
    """Returns the names that `dovetail policies` lists."""
    answer = _call(checkout, [str(checkout.dovetail), "policies", "--json"], checkout.root, {})
    if answer.returncode:
        raise BadInput(f"{checkout.dovetail}: {_last(answer.stderr)}")
    return list(json.loads(answer.stdout)["policies"])


def check_code(checkout: Checkout) -> None:
    """Raises BadInput unless the command runs the code of its own checkout.

    A copied virtual environment still names the checkout that it was copied from.
    """
    if not checkout.python.exists() or not checkout.dovetail.exists():
        raise BadInput(f"{checkout.root}: no {checkout.dovetail}; install the checkout first")
    code = "import dovetail; print(dovetail.__file__)"
    answer = _call(checkout, [str(checkout.python), "-c", code], checkout.root, {})
    if answer.returncode:
        raise BadInput(f"{checkout.python}: {_last(answer.stderr)}")
    place = Path(answer.stdout.strip()).resolve()
    if not place.is_relative_to(checkout.root.resolve()):
        raise BadInput(f"{checkout.root}: its Python runs {place.parent}, another checkout")


def store(
    checkout: Checkout,
    parts: Iterable[Part],
    folder: Path,
    environment: dict[str, str],
    jobs: int,
) -> None:
    """Runs all parts, `jobs` commands at once, and writes what they give to `folder`."""
    for part in parts:
        (folder / part.name).mkdir(parents=True)
        if part.name == "golden":
            for name, rows in BY_HAND.items():
                text = "job_id,submit_s,gpus,duration_s\n" + rows
                (folder / part.name / f"{name}.csv").write_text(text)
        with ThreadPoolExecutor(jobs) as pool:
            futures = [
                pool.submit(_store_run, checkout, part.name, run, folder, environment)
                for run in part.runs
            ]
            for future in futures:
                future.result()


def _store_run(
    checkout: Checkout, part: str, run: PlannedRun, folder: Path, environment: dict[str, str]
) -> None:
    place = folder / part / run.name
    place.mkdir()
    for number, words in enumerate(run.commands):
        if words[0] == "dovetail":
            spelled, here = [str(checkout.python), str(checkout.dovetail)], folder
        else:
            spelled, here = [str(checkout.python)], checkout.root
        answer = _call(checkout, [*spelled, *words[1:]], here, environment)
        for name, text in (("stdout", answer.stdout), ("stderr", answer.stderr)):
            text = text.replace(str(checkout.root), "CHECKOUT")
            (place / f"{number}.{name}").write_text(text)
        (place / f"{number}.exit").write_text(f"{answer.returncode}\n")


def failures(parts: Iterable[Part], folder: Path) -> list[str]:
    """Returns one sentence for each command that ended in another way than it should."""
    sentences = []
    for part in parts:
        for run in part.runs:
            for number, words in enumerate(run.commands):
                stem = folder / part.name / run.name
                code = int((stem / f"{number}.exit").read_text())
                if code != run.exit_code:
                    why = _last((stem / f"{number}.stderr").read_text())
                    sentences.append(f"`{' '.join(words)}` ends with exit code {code}: {why}")
    return sentences


def _call(
    checkout: Checkout, words: list[str], here: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs one command; the checkout's own source comes before what the environment installs."""
    variables = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("DOVETAIL", "PYTHON"))},
        "PYTHONPATH": str(checkout.root / "src"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
        **environment,
    }
    try:
        return subprocess.run(
            words,
            cwd=here,
            env=variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"`{' '.join(words)}` runs for more than {TIMEOUT_S} s") from None


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
