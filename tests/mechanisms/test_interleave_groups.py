"""Grouping: rounds of best matchings, merged only as far as needed, legal in size and memory."""

import random
from collections.abc import Sequence

import pytest

from builders import Row, Stage
from dovetail.algorithms.stage_cycle import cycle_s, orderings
from dovetail.core.view import show
from dovetail.mechanisms.interleaving.groups import Grouping, MergeNode, SizeBucket, group
from dovetail.mechanisms.interleaving.rules import Ordering, SetRules, rules_of
from dovetail.physics.sharing.turns import InterleaveRule
from papers.muri.best_cycles import best_ordering, efficiency
from staged_physics import PLAIN, staged_physics

GPU_BYTES = float("inf")
STORAGE, CPU, GPU, NETWORK = (3, 1, 1, 1), (1, 3, 1, 1), (1, 1, 3, 1), (1, 1, 1, 3)


def rules_for(
    stages: Sequence[Sequence[float]],
    kinds: Sequence[int],
    *,
    rule: InterleaveRule = PLAIN,
    ordering: Ordering | None = None,
    alone_s: Sequence[float] = (),
    held_bytes: Sequence[tuple[float, float]] = (),
) -> SetRules:
    """Returns the rules for single-GPU jobs of these kinds."""
    rows = [Row(1, 10, shareable=True) for _ in kinds]
    stage = Stage(rows, "muri-s", "1x4")
    physics = staged_physics(
        stage.trace.jobs, stages, kinds, alone_s=alone_s, rule=rule, held_bytes=held_bytes
    )
    show(stage.view, physics=physics)
    return rules_of(stage.view, ordering or Ordering())


def bucket_of(kinds: Sequence[int], gpus: int = 1, memory_bytes: float = GPU_BYTES) -> SizeBucket:
    """Returns a bucket of single jobs, the first the best."""
    nodes = [MergeNode((i,), (kind,)) for i, kind in enumerate(kinds)]
    return SizeBucket(gpus, memory_bytes, False, nodes, {})


def sets(groups: Sequence[tuple[SizeBucket, MergeNode]]) -> list[tuple[int, ...]]:
    """Returns the members of the groups, in order."""
    return sorted(node.members for _, node in groups)


def test_jobs_that_all_fit_are_not_grouped() -> None:
    rules = rules_for([STORAGE, CPU], [0, 1, 0])
    assert sets(group(rules, Grouping(), [bucket_of([0, 1, 0])], 3)) == [(0,), (1,), (2,)]


def test_they_are_where_the_letter_of_the_paper_is_asked_for() -> None:
    rules = rules_for([STORAGE, CPU], [0, 1])
    how = Grouping(always_group=True)
    assert sets(group(rules, how, [bucket_of([0, 1])], 2)) == [(0, 1)]


def test_one_pair_is_merged_where_one_gpu_is_short_and_it_is_the_most_efficient() -> None:
    kinds = [0, 0, 1, 2]
    stages = [(1, 1, 0, 0), (2, 2, 0, 0), (8, 8, 0, 0)]
    rules = rules_for(stages, kinds)
    # Two of kind 0 fill both resources; 1 beside 2 leaves them idle for most of a cycle.
    assert sets(group(rules, Grouping(), [bucket_of(kinds)], 3)) == [(0, 1), (2,), (3,)]


def test_of_pairs_as_efficient_those_of_more_gpus_are_merged_first() -> None:
    rules = rules_for([STORAGE, CPU], [0, 1, 0, 1])
    small, large = bucket_of([0, 1]), bucket_of([0, 1], gpus=2)
    # Six GPUs are asked for and five are there: either pair would do, the large one is merged.
    merged = [b.gpus for b, node in group(rules, Grouping(), [small, large], 5) if node.members[1:]]
    assert merged == [2]


def test_a_cycle_is_no_shorter_than_the_slowest_member_alone() -> None:
    stages, alone_s = [(1, 0, 0, 0), (1, 0, 0, 0)], (4.0, 5.0)
    floored = InterleaveRule.parse("barrier,no-contention")
    assert rules_for(stages, [0, 1], alone_s=alone_s).cycle_s((0, 1)) == 2
    assert rules_for(stages, [0, 1], alone_s=alone_s, rule=floored).cycle_s((0, 1)) == 5


def test_four_jobs_of_four_bottlenecks_fill_one_gpu() -> None:
    rules = rules_for([STORAGE, CPU, GPU, NETWORK], [0, 1, 2, 3])
    assert sets(group(rules, Grouping(), [bucket_of([0, 1, 2, 3])], 1)) == [(0, 1, 2, 3)]
    # Long stages all in one phase: 3 + 1 + 1 + 1 = 6 s in which each makes an iteration of 6 s.
    assert rules.cycle_s((0, 1, 2, 3)) == 6


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_group_exceeds_its_limit(limit: int) -> None:
    kinds = [0, 1, 2, 3] * 3
    rules = rules_for([STORAGE, CPU, GPU, NETWORK], kinds)
    for merge_order in ("efficiency", "class"):
        how = Grouping(group_limit=limit, merge_order=merge_order)
        groups = group(rules, how, [bucket_of(kinds)], 1)
        assert sorted(m for _, n in groups for m in n.members) == list(range(12))
        # A limit of 3 makes pairs here: all jobs pair in the first round, and two pairs are four.
        assert max(len(n.members) for _, n in groups) == {1: 1, 2: 2, 3: 2, 4: 4}[limit]


def test_buckets_of_other_gpu_counts_are_kept_apart() -> None:
    rules = rules_for([STORAGE, CPU], [0, 1, 0, 1])
    one, two = bucket_of([0, 1]), bucket_of([0, 1], gpus=2)
    groups = group(rules, Grouping(), [one, two], 3)
    assert [(b.gpus, n.members) for b, n in groups] == [(1, (0, 1)), (2, (0, 1))]


def test_jobs_that_do_not_fit_into_memory_are_not_paired() -> None:
    held = [(6.0, 3.0), (4.0, 1.0), (2.0, 1.0)]
    rules = rules_for([STORAGE, CPU, GPU], [0, 1, 2], held_bytes=held)
    # 0 with 1: fixed 6 + 4, and 3 of activations in turns: 13. 0 with 2: 6 + 2 + 3 = 11.
    assert sets(group(rules, Grouping(), [bucket_of([0, 1, 2], memory_bytes=12)], 1)) == [
        (0, 2),
        (1,),
    ]
    assert rules.weight((0, 1), 12.0) == 0 < rules.weight((0, 1), 13.0)


def test_a_group_that_does_less_than_one_alone_is_dissolved() -> None:
    kinds = [0, 0]
    slow = InterleaveRule.parse("barrier,contention,no-floor")
    rules = rules_for([(4, 1, 1, 1)], kinds, rule=slow)
    # Two of a kind: 4 + 4 + 1 + 1 = 10 s, times 1.31: in 13.1 s both do 14 s of work.
    assert sets(group(rules, Grouping(), [bucket_of(kinds)], 1)) == [(0, 1)]
    rules = rules_for([(4, 0, 0, 0)], kinds, rule=slow)
    assert sets(group(rules, Grouping(), [bucket_of(kinds)], 1)) == [(0,), (1,)]
    how = Grouping(autopack=False)
    assert sets(group(rules, how, [bucket_of(kinds)], 1)) == [(0, 1)]


def test_without_matching_jobs_are_grouped_in_line() -> None:
    kinds = [0, 0, 1, 1, 0, 1]
    rules = rules_for([STORAGE, CPU], kinds)
    how = Grouping(matching="priority", autopack=False)
    assert sets(group(rules, how, [bucket_of(kinds)], 2)) == [(0, 1, 2, 3), (4, 5)]
    assert sets(group(rules, how, [bucket_of(kinds)], 4)) == [(0, 1, 2), (3,), (4,), (5,)]


def test_pairs_that_run_together_stay_together_where_any_of_a_type_would_do() -> None:
    kinds = [0, 0, 1, 1]
    rules = rules_for([STORAGE, CPU], kinds)
    plain = bucket_of(kinds)
    assert sets(group(rules, Grouping(), [plain], 2)) == [(0, 2), (1, 3)]
    used = bucket_of(kinds)
    used.together = {0: 7, 3: 7}
    assert sets(group(rules, Grouping(), [used], 2)) == [(0, 3), (1, 2)]


def test_the_worst_ordering_has_the_longest_cycle() -> None:
    stages = [(2, 1, 1, 0), (1, 2, 1, 0), (1, 1, 2, 0)]
    worst = rules_for(stages, [0, 1, 2], ordering=Ordering(worst=True))
    tried = [cycle_s(stages, offsets) for offsets in orderings(3, 4)]
    assert worst.cycle_s((0, 1, 2)) == max(tried) > min(tried)


def test_consecutive_orderings_miss_those_with_a_gap() -> None:
    stages = [(5, 0, 5, 0), (0, 5, 0, 5)]
    gap = rules_for(stages, [0, 0])
    letter = rules_for(stages, [0, 0], ordering=Ordering(consecutive=True))
    assert gap.cycle_s((0, 0)) <= letter.cycle_s((0, 0))


def naive_rounds(stages: Sequence[Sequence[float]], kinds: Sequence[int]) -> list[int]:
    """Returns the weight of each round of the plain algorithm: every node, every union anew."""
    import rustworkx

    def weight(members: tuple[int, ...]) -> int:
        rows = [stages[kinds[m]] for m in members]
        return round(1e9 * efficiency(rows, best_ordering(rows)[0]))

    nodes: list[tuple[int, ...]] = [(i,) for i in range(len(kinds))]
    weights = []
    for _ in range(2):
        graph = rustworkx.PyGraph()
        graph.add_nodes_from(range(len(nodes)))
        for i, one in enumerate(nodes):
            for j in range(i):
                if len(one) + len(nodes[j]) <= 4:
                    graph.add_edge(i, j, weight(one + nodes[j]))
        pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
        weights.append(sum(weight(nodes[i] + nodes[j]) for i, j in pairs))
        inside = {i for pair in pairs for i in pair}
        nodes = [n for i, n in enumerate(nodes) if i not in inside] + [
            nodes[i] + nodes[j] for i, j in pairs
        ]
    return weights


@pytest.mark.parametrize("seed", range(8))
def test_the_first_round_weighs_what_the_plain_algorithm_s_does(seed: int) -> None:
    draw = random.Random(seed)
    stages = [[draw.uniform(0.1, 5) for _ in range(4)] for _ in range(draw.randint(1, 6))]
    kinds = [draw.randrange(len(stages)) for _ in range(draw.randint(2, 40))]
    rules = rules_for(stages, kinds)
    bucket = bucket_of(kinds)
    groups = group(rules, Grouping(group_limit=2, autopack=False), [bucket], 1)
    ours = sum(rules.weight(n.kinds, GPU_BYTES) for _, n in groups if len(n.kinds) == 2)
    assert ours == pytest.approx(naive_rounds(stages, kinds)[0], abs=len(kinds))


@pytest.mark.parametrize("seed", range(8))
def test_every_round_is_the_best_for_what_it_was_given(seed: int) -> None:
    draw = random.Random(seed)
    stages = [[draw.uniform(0.1, 5) for _ in range(4)] for _ in range(5)]
    kinds = [draw.randrange(5) for _ in range(36)]
    rules = rules_for(stages, kinds)
    bucket = bucket_of(kinds)
    group(rules, Grouping(group_limit=4, autopack=False, merge_order="class"), [bucket], 18)
    assert sorted(len(n.members) for n in bucket.nodes) == [2] * 18
    given = [n.kinds for n in bucket.nodes]
    after = SizeBucket(1, GPU_BYTES, False, list(bucket.nodes), {})
    group(rules, Grouping(group_limit=4, autopack=False), [after], 9)
    ours = sum(rules.weight(n.kinds, GPU_BYTES) for n in after.nodes if len(n.kinds) == 4)
    assert ours == best_pairs_of(rules, given)


def best_pairs_of(rules: SetRules, nodes: Sequence[tuple[int, ...]]) -> int:
    """Returns the weight of the best matching of nodes, each looked at alone."""
    import rustworkx

    graph = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(nodes)))
    for i, one in enumerate(nodes):
        for j in range(i):
            union = tuple(sorted(one + nodes[j]))
            graph.add_edge(i, j, rules.weight(union, GPU_BYTES))
    pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
    return sum(rules.weight(tuple(sorted(nodes[i] + nodes[j])), GPU_BYTES) for i, j in pairs)
