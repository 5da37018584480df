"""The first sentence: what could be deployed today, what more would add, and who pays."""

from dataclasses import replace

import polars as pl
from result_scene import pair

from dovetail.record.result import IF_KNOWN, POLICY, RECORDED, Comparison, Contrast
from dovetail.report.words import comparison_sentence, short_names


def told(*contrasts: Contrast, site: str = "fifo") -> Comparison:
    return replace(pair(200), contrasts=list(contrasts), site=site)


def test_a_gain_over_the_record_and_over_the_replay_have_their_intervals() -> None:
    comparison = told(
        Contrast("today", "sjf", RECORDED, 200, 0.5, 0.4, 0.8),
        Contrast("over site", "sjf", "fifo", 200, 0.625, 0.5, 0.9),
    )
    said = comparison_sentence(comparison)
    assert said.startswith(
        "Of what could be deployed today sjf is best: the mean job ends 2.00x sooner than recorded "
        "(95 % interval 1.25x to 2.50x), 1.60x sooner than the replay of fifo (1.11x to 2.00x); "
    )


def test_an_open_interval_says_first_that_nothing_clearly_beats_what_there_is() -> None:
    known = Contrast("today", "sjf", RECORDED, 200, 0.9, 0.8, 0.95)
    over = Contrast("over site", "sjf", "fifo", 200, 0.98, 0.9, 1.05)
    assert comparison_sentence(told(known, over)).startswith(
        "Nothing that could be deployed today clearly beats fifo; sjf has the shortest mean: the "
        "mean job ends 1.11x sooner than recorded (95 % interval 1.05x to 1.25x), no clear "
        "difference from the replay of fifo (0.95x to 1.11x); "
    )
    alone = Contrast("today", "sjf", "fifo", 200, 0.98, 0.9, 1.05)
    assert comparison_sentence(told(alone)).startswith(
        "Nothing that could be deployed today clearly beats fifo; sjf has the shortest mean: "
    )


def test_what_more_would_add_follows_and_an_open_interval_is_no_clear_difference() -> None:
    said = comparison_sentence(
        told(
            Contrast("today", "sjf", "fifo", 200, 0.5, 0.4, 0.8),
            Contrast("preemption", "srtf", "sjf", 200, 0.98, 0.9, 1.1),
            Contrast("known lengths", "sjf, known", "sjf", 200, 0.8, 0.7, 0.9),
            Contrast("elasticity", "afs-l", "sjf", 200, 1.25, None, None),
        )
    )
    assert (
        "Preemption (srtf) would make no clear difference (0.91x to 1.11x); known lengths (sjf) "
        "would make it 1.25x sooner (1.11x to 1.43x); elasticity (afs-l) would make it 1.25x later "
        "(no interval)."
    ) in said


def test_a_baseline_that_nothing_deployable_beats_is_said_so() -> None:
    said = comparison_sentence(
        told(Contrast("preemption", "srtf", "fifo", 200, 0.5, 0.4, 0.8), site="fifo")
    )
    assert said.startswith("Of what could be deployed today nothing beats fifo")


def test_the_replay_of_the_sites_scheduler_is_no_gain_over_the_record() -> None:
    replay = Contrast("today", "sjf", RECORDED, 200, 1.1, 1.05, 1.2)
    said = comparison_sentence(told(replay, site="sjf"))
    assert said.startswith(
        "Of what could be deployed today nothing beats sjf, which stands for your scheduler; "
        "replayed, the mean job ends 1.10x later than recorded (95 % interval 1.05x to 1.20x)"
    )
    assert "wait" not in said


def test_who_pays_is_named_by_size_and_account() -> None:
    comparison = told(Contrast("today", "sjf", "fifo", 200, 0.5, 0.4, 0.8))
    slower = pl.when(pl.col("size_class") == ">8").then(pl.col("wait_s") * 3 + 600)
    results = dict(comparison.results)
    base = results["fifo"].jobs.with_columns(account=pl.lit("physics"))
    ours = base.with_columns(wait_s=slower.otherwise(pl.col("wait_s") / 2))
    results["fifo"] = replace(results["fifo"], jobs=base)
    results["sjf"] = replace(results["sjf"], jobs=ours)
    big = (base["size_class"] == ">8").sum()
    said = comparison_sentence(replace(comparison, results=results))
    assert f"; compared with fifo, {big} jobs of >8 GPUs wait 3." in said
    # Where there is a record, who pays is still told against the replay, which errs likewise.
    longer = base.with_columns(pl.col("wait_s") * 10)
    recorded = {RECORDED: replace(results["fifo"], jobs=longer), **results}
    logged = told(
        Contrast("today", "sjf", RECORDED, 200, 0.5, 0.4, 0.8),
        Contrast("over site", "sjf", "fifo", 200, 0.9, 0.8, 1.1),
    )
    said = comparison_sentence(replace(logged, results=recorded))
    assert f"; compared with fifo, {big} jobs of >8 GPUs wait 3." in said
    assert " instead of 25.9 h (the log has 10.8 d: the replay is far off there)" in said
    results["sjf"] = replace(results["sjf"], jobs=base)
    said = comparison_sentence(replace(comparison, results=results))
    assert "no size of job waits longer" in said


def test_a_row_with_known_lengths_keeps_its_mark_in_a_short_name() -> None:
    names = ["srtf:bypass=skip", "srtf:bypass=skip, known", "gandiva-deadline:x=1, known"]
    assert list(short_names(names).values()) == ["srtf", "srtf, known", "gandiva-…, known"]


def test_the_record_and_known_lengths_are_ranked_apart() -> None:
    comparison = pair(60)
    first, second = comparison.table.to_dicts()
    rows = [
        {**first, "policy": "sjf, known", "kind": IF_KNOWN, "avg_jct_s": 1.0},
        {**first, "kind": POLICY, "avg_jct_s": 9.0},
        {**second, "kind": POLICY, "avg_jct_s": 5.0},
        {**first, "policy": RECORDED, "kind": RECORDED, "avg_jct_s": 99.0},
    ]
    apart = replace(comparison, table=pl.DataFrame(rows, schema=comparison.table.schema))
    order = apart.ranked["policy"].to_list()
    assert order == [RECORDED, second["policy"], first["policy"], "sjf, known"]
    assert apart.best == second["policy"]
