"""The simulator against the live scheduler: the same jobs, the same policy, both ways.

    python -m benchmarks.live_fidelity [--quick] [--seed 2] [--real POLICY,...] [--speed 150]
    python -m benchmarks.live_fidelity --policies all --real none [--placement ...] [--message-s 0]
    python -m benchmarks.live_fidelity --cpu [--policies fifo,srtf]

Sixty jobs on emulated 4x4: in virtual time (controller, store, agents, messages; no waiting), then
through real processes whose time runs faster. With `--cpu` twelve jobs that train on this machine.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import live_fidelity_cpu
from benchmarks.live_play import live_cluster, serve
from benchmarks.run_outcomes import (
    POLICIES,
    Fidelity,
    drawn_trace,
    policies_of,
    served,
    simulated,
)
from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.live.serving.virtual_live import MESSAGE_S, play, specs_of
from dovetail.report.plots import canvas
from dovetail.study.option_texts import OptionTexts

NODES, GPUS = 4, 4
CLUSTER = f"{NODES}x{GPUS}"
SWITCHING = "restart:30"
PREPARED = "restart:30,prepared:10"
PLACEMENT = "strict,best-fit,keep"
"""Together on few nodes: spread over the zoo's networks some jobs would last twenty times longer,
and the rest of the trace would not show in the means."""
HEAD = (
    "| policy | mean JCT, live | simulated | difference | makespan | QL | CE | over time: QL, CE"
    " | worst job |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
QL, CE = "waiting", "cluster_efficiency"


def row(found: Fidelity) -> str:
    """Returns one policy as a row of the table."""
    job, off = found.worst()
    return (
        f"| {found.policy} | {found.live.mean_jct_s:.1f} s | {found.simulated.mean_jct_s:.1f} s"
        f" | {found.jct:+.3%} | {found.makespan:+.3%} | {found.queue_length:+.3%}"
        f" | {found.efficiency:+.3%} | {found.apart(QL):.2%}, {found.apart(CE):.2%}"
        f" | {off:+.3%} (job {job}) |"
    )


def emulated(
    trace: Trace,
    policies: Sequence[str],
    switching: str,
    placement: str = PLACEMENT,
    message_s: float = MESSAGE_S,
) -> list[Fidelity]:
    """Plays a trace live in virtual time and in the simulator."""
    given: OptionTexts = {"switching": switching, "placement": placement}
    how = f"switching {switching}, placement {placement}, messages of {message_s:g} s"
    print(f"\nVirtual time, {trace.name}, {how}\n\n{HEAD}")
    found = []
    for policy in policies:
        queries = play(trace, policy, Cluster.uniform(NODES, GPUS), given, message_s=message_s)
        one = Fidelity(policy, served(queries), simulated(trace, policy, _there(given)))
        print(row(one), flush=True)
        found.append(one)
    return found


def _there(given: OptionTexts) -> OptionTexts:
    return {**given, "cluster": CLUSTER}


def not_knowing(trace: Trace) -> None:
    """Says what it costs AFS-P to begin with a guess and to measure (AFS section 4.5)."""
    print("\n| switching | mean JCT, profiles known | nothing known, measured | difference |")
    print("| --- | --- | --- | --- |")
    for switching in (PREPARED, SWITCHING):
        given: OptionTexts = {"switching": switching, "placement": PLACEMENT}
        knowing, learning = (
            served(play(trace, "afs-p", Cluster.uniform(NODES, GPUS), given, guess=guess))
            for guess in (None, OptionTexts(physics="linear"))
        )
        off = learning.mean_jct_s / knowing.mean_jct_s - 1
        print(
            f"| {switching} | {knowing.mean_jct_s:.1f} s | {learning.mean_jct_s:.1f} s"
            f" | {off:+.2%} |",
            flush=True,
        )


def real(trace: Trace, policies: Sequence[str], speed: float) -> list[Fidelity]:
    """Plays a trace through real processes and in the simulator."""
    print(f"\nReal processes, {trace.name}, {speed:g} times faster than ours\n\n{HEAD}")
    told: OptionTexts = {"switching": SWITCHING, "placement": PLACEMENT}
    words = ("--switching", SWITCHING, "--placement", PLACEMENT)
    submissions = list(zip(trace.jobs.submit_s.tolist(), specs_of(trace), strict=True))
    found = []
    for policy in policies:
        began, load = time.monotonic(), os.getloadavg()[0]
        engine = f"emulated:{CLUSTER}@{speed:g}"
        with live_cluster(engine, policy, words) as cluster:
            serve(cluster, submissions, speed=speed, patience_s=3600)
            live = cluster.read()
        one = Fidelity(policy, live, simulated(trace, policy, _there(told)))
        load = max(load, os.getloadavg()[0])
        print(f"{row(one)} <!-- {time.monotonic() - began:.0f} s, load {load:.1f} -->", flush=True)
        found.append(one)
    return found


def draw(found: Sequence[Fidelity], stem: Path, title: str) -> None:
    """Draws QL and CE over time, both sides on top of each other."""
    words = ((QL, "jobs waiting (QL)"), (CE, "efficiency (CE)"))
    with canvas.house_style():
        figure, axes = canvas.sheet(1.3 * 2 * len(found), 2 * len(found))
        for i, one in enumerate(found):
            end_s = max(o.series["t_s"].to_numpy()[-1] for o in (one.live, one.simulated))
            for j, (column, word) in enumerate(words):
                panel = axes[2 * i + j]
                unit_s = canvas.time_axis(panel, float(end_s))
                for outcome, look in ((one.simulated, ("simulated", 0)), (one.live, ("live", 1))):
                    t_s = outcome.series["t_s"].to_numpy()
                    panel.step(
                        np.append(t_s, end_s) / unit_s,
                        np.append(outcome.series[column].to_numpy(), 0.0),
                        where="post",
                        label=look[0],
                        color=canvas.colour(look[1]),
                        linestyle=canvas.dash(look[1]),
                        linewidth=3.0 - 2.0 * look[1],
                    )
                panel.set_ylabel(word)
                panel.set_title(f"{one.policy}, {title}", loc="left")
                canvas.grid(panel)
        axes[0].legend(loc="upper right")
        canvas.save(figure, stem)
    print(f"drawn: {stem}.png")


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30 jobs, virtual time only")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated, or all")
    parser.add_argument("--switching", default=SWITCHING, help="in virtual time")
    parser.add_argument("--placement", default=PLACEMENT, help="in virtual time")
    parser.add_argument("--message-s", type=float, default=MESSAGE_S, help="in virtual time")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--real", default="afs-p", help="for real processes; or all, none")
    parser.add_argument("--speed", type=float, default=150.0)
    parser.add_argument("--cpu", action="store_true", help="twelve jobs that train, instead")
    parser.add_argument("--pictures", type=Path, default=None)
    given = parser.parse_args()
    policies = policies_of(given.policies)
    if given.cpu:
        found = live_fidelity_cpu.run(policies, HEAD, row)
        if given.pictures:
            draw(found, given.pictures / "live-cpu", "12 jobs that train")
        return
    trace = drawn_trace(30 if given.quick else 60, 1 if given.quick else 3, 16, seed=given.seed)
    found = emulated(trace, policies, given.switching, given.placement, given.message_s)
    if given.pictures:
        chosen = [f for f in found if f.policy in ("afs-p", "sjf-bsbf")]
        draw(chosen, given.pictures / "live-virtual", "virtual time")
    if given.quick:
        return
    resizing = [p for p in policies if "resize" in parse_policy(p).powers]
    emulated(trace, resizing, PREPARED, given.placement, given.message_s)
    not_knowing(trace)
    if given.real != "none":
        real(trace, policies if given.real == "all" else given.real.split(","), given.speed)


if __name__ == "__main__":
    main()
