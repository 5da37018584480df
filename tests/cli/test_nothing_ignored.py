"""An option, or a field of the cluster's file, that would have no effect is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Shell

COMPARE = ("compare", "--cluster", "4x4", "-p", "fifo,sjf", "--processes", "1")
WHATIF = ("whatif", "--cluster", "4x4", "--nodes", "+1", "--processes", "1")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((*COMPARE, "--window-days", "3"), "--window-days: only --windows uses it"),
        ((*COMPARE, "--site", "fifo"), "--site: only a trace that records starts uses it"),
        ((*WHATIF, "--longer-jobs", "exempt"), "--longer-jobs: only --time-limit uses it"),
        ((*WHATIF, "--type", "a100"), "--type: only --target uses it"),
        (("simulate", "-p", "fifo", "--no-report"), "--no-report: only -o uses it"),
        (("submit", "--parsable", "--json"), "--parsable: --json prints the numbers already"),
    ],
)
def test_an_option_that_nothing_uses_is_refused(
    shell: Shell, month: Path, words: tuple[str, ...], complaint: str
) -> None:
    assert complaint in shell.refused(*words, month)


def test_the_zone_of_reservations_is_refused_without_any(shell: Shell, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=n1 Gres=gpu:4\nPartitionName=gpu Nodes=n1\n")
    words = ("cluster", conf, "-o", tmp_path / "site.toml", "--timezone", "Europe/Berlin")
    assert "only --reservations or --epoch uses it" in shell.refused(*words)


def test_longer_jobs_may_be_exempt_from_a_limit_of_a_row_of_several_changes(
    shell: Shell, month: Path
) -> None:
    row = ("--together", "--nodes +1 --time-limit 2h")
    said = shell.ok(*WHATIF[:3], month, *row, "--longer-jobs", "exempt", "--processes", "1")
    assert "does not apply to" in " ".join(said.out.split())


def test_columns_are_refused_for_a_log_that_names_its_own(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("JobID|State|Submit|Start|End|AllocTRES\n1|COMPLETED|||| \n")
    words = ("trace", "import", log, "-o", tmp_path / "out.csv", "--columns", "JobID,State")
    assert "names the columns already" in shell.refused(*words)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("priority = 5", "priority of queue 'prod'"),
        ("guaranteed = 1", "guaranteed of queue 'prod'"),
        ("weight = 2", "weight of queue 'prod'"),
        ('tier = "spot"', "tier of queue 'prod'"),
    ],
)
def test_up_refuses_turns_of_tenants_under_a_policy_that_has_none(
    shell: Shell, tmp_path: Path, field: str, told: str
) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[[queue]]\nname = "prod"\n{field}\n')
    words = ("up", "--home", tmp_path / "home", "--engine", "local:1", "--cluster", file)
    said = shell.refused(*words, "--policy", "fifo")
    assert f"policy fifo ignores {told}" in said
    assert "--policy tenancy:inner=fifo" in said


def test_up_refuses_preemption_by_qos_under_tenancy(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('[[qos]]\nname = "high"\npreempts = ["low"]\n[[qos]]\nname = "low"\n')
    words = ("up", "--home", tmp_path / "home", "--engine", "local:1", "--cluster", file)
    said = shell.refused(*words, "--policy", "tenancy:inner=backfill")
    assert "policy tenancy ignores preempts of qos 'high'" in said
    assert "--policy slurm:preempt_mode=requeue" in said
