"""Names mean one thing, imports make no circle, functions stay simple: read from the source."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from glossary import glossary_words, is_form_of, plain_words, words_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dovetail"
FILES = sorted(SOURCE.rglob("*.py"))
OUTSIDE = sorted(p for folder in ("papers", "tools") for p in (ROOT / folder).rglob("*.py"))
BRANCHES_MAX = 15
PLAIN_WORDS_MAX = 150


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def public_classes(paths: list[Path]) -> Iterator[tuple[str, Path]]:
    for path in paths:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for cls, path in public_classes([*FILES, *OUTSIDE]):
        homes[cls].append(name(path))
    assert {cls: where for cls, where in homes.items() if len(where) > 1} == {}


def named() -> Iterator[str]:
    """Yields the names of the public classes of `live/` and `train/`."""
    for cls, path in public_classes(FILES):
        if name(path).startswith(("src/dovetail/live/", "src/dovetail/train/")):
            yield cls


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their file name, so the second would not run."""
    counts = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [each for each, n in counts.items() if n > 1 and each not in ("conftest.py",)] == []


def test_classes_of_live_and_train_are_named_by_the_glossary_or_by_plain_words() -> None:
    known = glossary_words() | plain_words()
    strange = {cls: [w for w in words_of(cls) if not is_form_of(w, known)] for cls in named()}
    assert {cls: words for cls, words in strange.items() if words} == {}


def test_the_list_of_plain_words_is_short_and_each_is_used() -> None:
    used = {word for cls in named() for word in words_of(cls)}
    assert len(plain_words()) <= PLAIN_WORDS_MAX
    assert [plain for plain in plain_words() if not any(is_form_of(w, {plain}) for w in used)] == []
    assert plain_words() & glossary_words() == set()


@pytest.mark.parametrize(
    ("word", "base"),
    [("stores", "store"), ("stored", "store"), ("running", "run"), ("queries", "query")],
)
def test_regular_forms_of_a_word_are_known_with_it(word: str, base: str) -> None:
    assert is_form_of(word, {base})
    assert not is_form_of(base + "room", {base})


def branches(function: ast.AST) -> int:
    """Returns the number of places where a function can go two ways, boolean operators included."""
    count = 0
    for node in ast.walk(function):
        match node:
            case ast.If() | ast.For() | ast.While() | ast.IfExp() | ast.ExceptHandler():
                count += 1
            case ast.match_case() | ast.Assert():
                count += 1
            case ast.comprehension():
                count += 1 + len(node.ifs)
            case ast.BoolOp():
                count += len(node.values) - 1
    return count


def test_branches_are_counted() -> None:
    code = (
        "def f(a):\n    if a and a.b:\n        return [x for x in a if x]\n    return 1 if a else 2"
    )
    assert branches(ast.parse(code)) == 5


def test_no_function_has_more_branches_than_a_reader_can_remember() -> None:
    many = {
        f"{name(path)}:{node.lineno} {node.name}": branches(node)
        for path in FILES
        for node in functions(path)
        if branches(node) > BRANCHES_MAX
    }
    assert many == {}


def annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    arguments = function.args
    all_arguments = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for argument in [*all_arguments, arguments.vararg, arguments.kwarg]:
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if function.returns is not None:
        yield function.returns


def test_no_signature_says_any() -> None:
    loose = Counter(
        name(path)
        for path in FILES
        for function in functions(path)
        for annotation in annotations(function)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id == "Any"
    )
    assert loose == {}


def module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_at_the_top(path: Path, modules: set[str]) -> set[str]:
    """Returns the modules that a file imports when it is loaded or for type checking."""
    found: set[str] = set()
    inside = {
        id(n)
        for f in ast.walk(tree(path))
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in ast.walk(f)
    }
    for node in ast.walk(tree(path)):
        if id(node) in inside:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                full if (full := f"{node.module}.{a.name}") in modules else node.module
                for a in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return found & modules - {module(path)}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Returns what lies on circles of a graph, and between them."""
    graph = dict(graph)
    while leaves := {m for m, to in graph.items() if not to & graph.keys()}:
        for leaf in leaves:
            del graph[leaf]
    # What is left imports something that is left: walk back from the other end as well.
    while roots := graph.keys() - {t for to in graph.values() for t in to}:
        for root in roots:
            del graph[root]
    return sorted(graph)


def test_no_imports_go_in_a_circle_not_even_for_types() -> None:
    modules = {module(p) for p in FILES}
    assert circle({module(p): imports_at_the_top(p, modules) for p in FILES}) == []


def test_no_folders_of_the_live_cluster_import_each_other() -> None:
    modules = {module(p) for p in FILES}
    graph: dict[str, set[str]] = defaultdict(set)
    for path in (SOURCE / "live").glob("*/*.py"):
        there = {m.split(".")[2] for m in imports_at_the_top(path, modules) if ".live." in m}
        graph[path.parent.name] |= there - {path.parent.name}
    assert len(graph) > 10
    assert circle(graph) == []
