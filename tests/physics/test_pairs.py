from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from dovetail.physics.sharing.contention import (
    Contention,
    parse_contention,
    shipped_contention,
)
from dovetail.physics.sharing.pairs import Measured, MeasuredPair, PairRatio
from tools.zoo.pairs import (
    OUTSIDE_THE_GPU,
    PairFit,
    PairRows,
    config_of,
    dump_contention,
    fit_contention,
    fit_law,
    loads,
    models_held_out,
    pair_report,
    pair_rows,
    pairs_held_out,
    read_pairs,
)

TRUE = PairFit(Contention(0.5, 0.6, lightest=0.25, heaviest=16.0), outside_share=0.4)
MODELS = {"one": 0.25, "two": 2.0, "three": 0.5, OUTSIDE_THE_GPU: 1.0}
"""The load of each made-up model at its smallest batch; the largest is eight times that."""


def made_up_rows(noise: float = 0.0) -> PairRows:
    configs = [(name, batch) for name in MODELS for batch in (1, 2, 4, 8)]
    sides = [(a, b) for a in configs for b in configs]
    load = {config: MODELS[config[0]] * config[1] for config in configs}
    mine, other = tuple(a for a, _ in sides), tuple(b for _, b in sides)
    mine_load = np.array([load[a] for a in mine])
    other_load = np.array([load[b] for b in other])
    blank = PairRows(mine, other, mine_load, other_load, np.ones(len(sides)))
    jitter = np.exp(noise * np.random.default_rng(3).standard_normal(len(sides)))
    ratio = np.maximum(1.0, TRUE.predicted(blank) * jitter)
    return PairRows(mine, other, mine_load, other_load, ratio)


def every(rows: PairRows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.ones(len(rows.ratio), bool)


def test_a_fit_finds_the_law_that_made_the_ratios() -> None:
    rows = made_up_rows()

    fit = fit_law(rows, every(rows))

    assert fit.law.half == pytest.approx(0.5, rel=1e-3)
    assert fit.law.weight_power == pytest.approx(0.6, rel=1e-3)
    assert (fit.law.lightest, fit.law.heaviest) == (0.25, 16.0)
    assert fit.outside_share == pytest.approx(0.4, rel=1e-3)


def test_models_never_met_are_predicted_if_they_follow_the_law() -> None:
    found = {one.what: one for one in models_held_out(made_up_rows())}

    assert found["three"].law.worst < 0.01
    assert found["three"].constant.mean > 0.1
    # What works outside the GPU is not told by its times.
    assert found[OUTSIDE_THE_GPU].law.mean > 0.1


def test_noise_in_the_ratios_shows_in_the_error_of_pairs_held_out() -> None:
    held_out = pairs_held_out(made_up_rows(noise=0.05))

    assert 0.02 < held_out.law.mean < 0.06 < held_out.constant.mean


def test_both_sides_of_a_pair_are_held_out_together() -> None:
    rows = made_up_rows()

    held = rows.of(["two"])

    assert held.sum() == len(rows.ratio) - (3 * 4) ** 2
    assert all(
        held[i] == ("two" in (a[0], b[0]))
        for i, (a, b) in enumerate(zip(rows.mine, rows.other, strict=True))
    )


def test_the_load_is_the_growing_part_over_the_fixed() -> None:
    times = {("line", b): 0.02 + 0.005 * b for b in (4, 8, 16)} | {("once", 1): 0.1}

    found = loads(times)

    assert found == {("line", b): pytest.approx(0.25 * b) for b in (4, 8, 16)}


def test_job_types_are_read_as_model_and_batch() -> None:
    assert config_of("ResNet-18 (batch size 16)") == ("ResNet-18", 16)
    assert config_of("A3C") == ("A3C", 1)


def plane(mine: float, other: float) -> float:
    return 0.1 * other / mine


def pair_of(measured: Sequence[Measured]) -> MeasuredPair:
    return MeasuredPair(measured, [plane(mine, other) for mine, other, _ in measured])


def ratio(pair: MeasuredPair, mine: float, other: float) -> float:
    return 1 + float(pair.factors([mine], [other])[0, 0]) * plane(mine, other)


MEASURED = [(8, 8, 1.2), (8, 32, 1.8), (32, 8, 1.05), (32, 32, 1.2)]


def test_measured_batches_have_the_measured_ratio() -> None:
    pair = pair_of(MEASURED)

    assert [ratio(pair, a, b) for a, b, _ in MEASURED] == pytest.approx([x for *_, x in MEASURED])


def test_between_batches_the_law_is_corrected_by_what_was_measured_around() -> None:
    # Excess over the law: 2 at all cells, so 2 everywhere.
    pair = pair_of([(a, b, 1 + 2 * plane(a, b)) for a, b, _ in MEASURED])

    assert ratio(pair, 16, 16) == pytest.approx(1 + 2 * plane(16, 16))
    assert ratio(pair, 3, 100) == pytest.approx(1 + 2 * plane(3, 100))


def test_half_way_in_octaves_the_correction_is_the_mean() -> None:
    pair = pair_of([(8, 8, 1.1), (8, 32, 1.8)])

    # 1 and 2 times the law's 0.1 and 0.4 at the ends; 1.5 times its 0.2 between them.
    assert ratio(pair, 8, 16) == pytest.approx(1 + 1.5 * 0.2)
    assert ratio(pair, 8, 64) == pytest.approx(1 + 2 * 0.8)


def test_a_batch_that_was_not_measured_has_the_correction_of_the_nearest() -> None:
    pair = pair_of([(8, 8, 1.2), (8, 32, 1.4), (32, 8, 1.025)])

    assert ratio(pair, 32, 32) == pytest.approx(1 + 1 * plane(32, 32))


def test_a_speed_up_counts_as_no_slowdown() -> None:
    assert pair_of([(8, 8, 0.9)]).factors([8], [16]).tolist() == [[0.0]]


@pytest.mark.parametrize(
    "made",
    [lambda: PairRatio("a", 1, "b", 1, 0.0, 1.0), lambda: PairRatio("a", 0, "b", 1, 1.0, 1.0)],
)
def test_a_pair_that_cannot_be_is_refused(made: Callable[[], PairRatio]) -> None:
    with pytest.raises(ValueError, match="must be"):
        made()


def test_a_law_with_negative_constants_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Contention(0.5, -0.1, 0.2, 10)


def test_what_is_written_reads_back_equal() -> None:
    known = shipped_contention()

    assert parse_contention(dump_contention(known)) == known
    assert len(known.pairs) == 42


def test_the_committed_file_is_what_the_data_make(data_dir: Path) -> None:
    again, known = fit_contention(data_dir), shipped_contention()

    assert again.pairs == known.pairs
    assert again.median_ratio == pytest.approx(known.median_ratio)
    assert again.median_utilization == pytest.approx(known.median_utilization, rel=1e-3)
    for key in ("half", "weight_power", "lightest", "heaviest"):
        ours, theirs = getattr(again.law.value, key), getattr(known.law.value, key)
        assert ours == pytest.approx(theirs, rel=1e-3), key
    assert again.host_capacity == known.host_capacity


def test_times_copied_from_another_gpu_are_left_out(data_dir: Path) -> None:
    v100, k80 = (read_pairs(data_dir, gpu_type) for gpu_type in ("v100", "k80"))

    def names(pairs: list[dict[str, str]]) -> list[str]:
        return sorted({row[side] for row in pairs for side in ("model_a", "model_b")})

    assert len(names(v100)) == 25
    assert "Transformer (batch size 256)" not in names(v100)
    assert "Transformer (batch size 16)" not in names(k80)
    assert "Transformer (batch size 256)" in names(k80)


def test_the_errors_the_documents_give(data_dir: Path) -> None:
    report = pair_report(data_dir)

    mean = {one.what: one.law.mean for one in report.held_out}
    constant = {one.what: one.constant.mean for one in report.held_out}
    on_the_gpu = ("ResNet-18", "ResNet-50", "Transformer", "LM")
    assert all(mean[name] < 0.6 * constant[name] for name in on_the_gpu)
    assert mean[OUTSIDE_THE_GPU] > constant[OUTSIDE_THE_GPU]
    assert report.batches.mean == pytest.approx(0.049, abs=0.002)
    assert report.rank["k80"] == pytest.approx(0.69, abs=0.01)


def test_larger_batches_press_more_and_suffer_less(data_dir: Path) -> None:
    """What the shape of the law rests on, in the data themselves."""
    rows = pair_rows(data_dir, "v100")
    ratio = {(a, b): x for a, b, x in zip(rows.mine, rows.other, rows.ratio, strict=True)}

    def doubled(side: int) -> tuple[int, int]:
        up = down = 0
        for pair, one in ratio.items():
            name, batch = pair[side]
            larger = ((name, 2 * batch), pair[1]) if side == 0 else (pair[0], (name, 2 * batch))
            other = ratio.get(larger, one)
            up, down = up + (other > 1.02 * one), down + (other < 0.98 * one)
        return up, down

    own_up, own_down = doubled(0)
    up, down = doubled(1)
    assert own_down > 4 * own_up
    assert up > 50 * down
