"""What a run was for its tenants: shares deserved and got, waits, stops and fairness by hand."""

from pathlib import Path

import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.policy import parse_policy
from dovetail.core.tenants import AccountSpec, QueueSpec
from dovetail.record.result import SHARE_COLUMNS, TENANT_COLUMNS, RunResult
from dovetail.study.folder import run_dict
from dovetail.study.options import Options
from dovetail.study.run import simulate, write_tables
from dovetail.study.tenant_notes import tenant_notes

EIGHT = (NodeGroup("all", 2, 4),)


def run(rows: list[Row], cluster: Cluster, policy: str = "fifo") -> RunResult:
    return simulate(trace_of(*rows), parse_policy(policy), Options(cluster))


def test_shares_are_what_each_queue_deserved_asked_for_and_held() -> None:
    queues = (QueueSpec("a", weight=3), QueueSpec("b"))
    # a holds all eight GPUs for 100 s, while b waits for eight; then b has them.
    result = run([Row(8, 100, queue="a"), Row(8, 100, queue="b")], Cluster(EIGHT, queues=queues))
    shares = result.shares
    assert dict(shares.schema) == dict(SHARE_COLUMNS)
    early = {r["tenant"]: r for r in shares.filter(shares["t_s"] == 0).to_dicts()}
    assert (early["a"]["deserved_gpus"], early["a"]["held_gpus"]) == (6, 8)
    assert (early["b"]["deserved_gpus"], early["b"]["asked_gpus"]) == (2, 8)
    late = {r["tenant"]: r for r in shares.filter(shares["t_s"] >= 100).to_dicts()}
    assert (late["a"]["asked_gpus"], late["b"]["deserved_gpus"]) == (0, pytest.approx(8))
    tenants = {r["tenant"]: r for r in result.tenants.to_dicts()}
    assert dict(result.tenants.schema) == dict(TENANT_COLUMNS)
    assert tenants["a"]["held_gpus"] == pytest.approx(4)
    assert tenants["b"]["avg_wait_s"] == 100
    assert tenants["a"]["deserved_gpus"] == pytest.approx(3)
    assert tenants["b"]["deserved_gpus"] == pytest.approx(5)
    # Held over deserved: 4/3 and 4/5.
    parts = (4 / 3, 4 / 5)
    jain = sum(parts) ** 2 / (2 * sum(p * p for p in parts))
    assert result.summary["jain_index"] == pytest.approx(jain)


def test_stops_are_told_apart_by_cause_in_every_table(tmp_path: Path) -> None:
    queues = (QueueSpec("prod", guaranteed=(("", 4),)), QueueSpec("dev"))
    rows = [Row(8, 100, queue="dev"), Row(4, 10, submit_s=5, queue="prod")]
    result = run(rows, Cluster(EIGHT, queues=queues), "tenancy")
    assert result.jobs["reclaims"].to_list() == [1, 0]
    assert result.summary["reclaims"] == 1
    of_dev = result.tenants.filter(result.tenants["tenant"] == "dev").to_dicts()[0]
    assert (of_dev["reclaims"], of_dev["preemptions"]) == (1, 1)
    write_tables(result, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} >= {"tenants.csv", "shares.csv"}
    assert run_dict(result)["tenants"] == result.tenants.to_dicts()


def test_accounts_are_summed_over_queues() -> None:
    cluster = Cluster(
        EIGHT,
        queues=(QueueSpec("a"), QueueSpec("b")),
        accounts=(AccountSpec("lab"), AccountSpec("sub", "lab")),
    )
    rows = [Row(2, 100, queue="a", account="sub"), Row(3, 100, queue="b", account="sub")]
    result = run(rows, cluster)
    accounts = result.tenants.filter(result.tenants["level"] == "account").to_dicts()
    assert {r["tenant"]: r["held_gpus"] for r in accounts} == pytest.approx({"lab": 5, "sub": 5})


def test_a_cluster_without_tenants_has_the_tables_it_always_had(tmp_path: Path) -> None:
    result = run([Row(8, 100, queue="a")], Cluster(EIGHT))
    assert "reclaims" not in result.jobs.columns
    assert not len(result.shares)
    assert not len(result.tenants)
    assert "jain_index" not in result.summary
    assert "tenants" not in run_dict(result)
    write_tables(result, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jobs.csv", "summary.json"]


def test_what_a_policy_ignores_is_said() -> None:
    jobs = trace_of(Row(1, 1, priority=2, queue="a"), Row(1, 1, queue="x")).jobs
    plain, weighed = Cluster(EIGHT), Cluster(EIGHT, queues=(QueueSpec("a", weight=2),))
    fifo, tenancy = parse_policy("fifo"), parse_policy("tenancy")
    assert tenant_notes(jobs, plain, [tenancy]) == []
    assert tenant_notes(jobs, plain, [fifo, tenancy]) == [
        "1 job states a priority, which fifo ignores (as in --policy tenancy:inner=fifo)."
    ]
    both = tenant_notes(jobs, plain, [fifo, parse_policy("backfill")])
    assert both[0].startswith("1 job states a priority, which backfill, fifo ignore (")
    said = tenant_notes(jobs, weighed, [fifo])
    assert said[1].startswith("Guarantees, weights, tiers, shares and priorities of the cluster's")
    assert said[2].startswith("1 jobs name a queue that the cluster's file lacks (x)")
    slurm = parse_policy("slurm")
    assert tenant_notes(jobs, plain, [slurm]) == []
    assert tenant_notes(jobs, weighed, [slurm])[0] == (
        "Guarantees, weights and tiers of queues have no effect with slurm "
        "(as in --policy tenancy:inner=slurm)."
    )
    tiered = Cluster(EIGHT, queues=(QueueSpec("a", priority_tier=2), QueueSpec("x")))
    assert tenant_notes(jobs, tiered, [slurm]) == []
    assert tenant_notes(jobs, tiered, [tenancy, slurm]) == [
        "priority_tier of queues is for slurm; tenancy ignores it."
    ]
