"""Whether workers use their GPUs or CPU slots."""

import subprocess
import sys
import time

from dovetail.live.engines.device_use import DeviceUsage, Workers, cpu_seconds
from dovetail.wire.agent import IdleReport, IdleWorker
from patience import until

TWO: Workers = {(1, 0): (100, (0,)), (2, 0): (200, (1,))}


def reports(use: DeviceUsage, clock: list[float], until_s: float, workers: Workers) -> list[object]:
    found = []
    while clock[0] < until_s:
        clock[0] += 5.0
        report = use.tick(lambda: workers, lambda: 30.0)
        if report is not None:
            found.append((clock[0], [(w.job, w.idle_s) for w in report.workers]))
    return found


def test_gpus_that_compute_nothing_are_idle_and_unknown_ones_are_not() -> None:
    used, clock = {0: 0.0, 1: 55.0}, [0.0]
    use = DeviceUsage(lambda: used, lambda: clock[0])
    assert reports(use, clock, 20.0, TWO) == []
    assert reports(use, clock, 40.0, TWO) == [(35.0, [(1, 30.0)])]
    used[0] = 3.0
    assert reports(use, clock, 60.0, TWO) == [(45.0, [])], "taken back once"
    used.clear()
    assert reports(use, clock, 200.0, TWO) == []


def test_a_slot_is_idle_while_its_processes_take_no_cpu_time() -> None:
    taken, clock = {100: 0.0, 200: 0.0}, [0.0]

    def cpu_s(keepers: object) -> dict[int, float]:
        taken[200] += 4.0
        taken[100] += 0.01
        return dict(taken)

    use = DeviceUsage(None, lambda: clock[0], cpu_s)
    assert reports(use, clock, 40.0, TWO)[-1] == (35.0, [(1, 30.0)])


def test_a_worker_whose_processes_are_not_found_counts_as_busy() -> None:
    clock = [0.0]
    use = DeviceUsage(None, lambda: clock[0], lambda keepers: {})
    assert reports(use, clock, 200.0, TWO) == []


def test_the_time_of_all_descendants_counts_also_of_those_that_are_gone() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    text = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {busy!r}])\n"
        f"subprocess.Popen([sys.executable, '-c', {busy!r}]); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", text]) as process:
        try:
            until(lambda: cpu_seconds([process.pid])[process.pid] > 0.5)
            before = cpu_seconds([process.pid])
            time.sleep(0.2)
            until(
                lambda: (
                    cpu_seconds([process.pid]) == before
                    or before.update(cpu_seconds([process.pid]))
                )
            )
        finally:
            process.kill()
    assert cpu_seconds([process.pid]) == {} and cpu_seconds([]) == {}


def test_a_report_names_the_worker() -> None:
    clock = [0.0]
    use = DeviceUsage(lambda: {0: 0.0}, lambda: clock[0])
    use.tick(lambda: {(7, 3): (1, (0,))}, lambda: 0.0)
    clock[0] = 10.0
    use.tick(lambda: {(7, 3): (1, (0,))}, lambda: 0.0)
    clock[0] = 20.0
    report = use.tick(lambda: {(7, 3): (1, (0,))}, lambda: 0.0)
    assert report == IdleReport((IdleWorker(7, 3, 20.0),))
