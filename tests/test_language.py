"""Names follow the language of the field: no pronouns or participles, and one meaning for each class and module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("rarestream", "learners", "service")
FOLDERS = ("rarestream", "learners", "service", "benchmarks", "docker", "tests")

PRONOUNS_AND_PARTICIPLES = (
    "one own told tell tells asked said says known knows found kept keeps held given met come stand due elsewhere"
)

# Names that users or stored data depend on.
KEPT_NAMES = {
    ("learners/algorithms/baselines/opaucs.py", "kept"),  # an array of stored states
    ("service/datasets/rows.py", "tell"),  # a method of files
    ("service/settings.py", "elsewhere"),  # a setting
}

SHARED_CLASSES = {
    "Params": "every algorithm has one: the protocol of `learners.algorithms.base`",
    "State": "every algorithm has one: the protocol of `learners.algorithms.base`",
    "UpdateResult": "public in the client, and a component of the OpenAPI document",
    "ScoreExplanation": "public in the client and in the library, for the same thing",
}

SHARED_MODULES = {
    **dict.fromkeys(("events", "groups", "learners", "metrics", "node"), "a route and its schemas, in two packages"),
    "errors": "the exceptions of the client, and those of the service",
    "settings": "the settings of learners, and those of the service",
}


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each name that a module defines, as an argument, by assignment or as an attribute, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_neither_pronouns_nor_participles(folder: str) -> None:
    words = PRONOUNS_AND_PARTICIPLES.split()
    wrong = [
        f"{path}:{line} {name}"
        for path, tree in sources(folder)
        for line, name in names_in(tree)
        if name.strip("_").lower() in words and (path, name) not in KEPT_NAMES
    ]
    assert not wrong


def test_every_exception_is_in_use() -> None:
    names = {(path, name) for path, tree in sources(*PACKAGES) for _, name in names_in(tree)}
    assert names >= KEPT_NAMES


def test_class_names_are_unique() -> None:
    classes = defaultdict(list)
    for path, tree in sources(*PACKAGES):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path)
    shared = {name: paths for name, paths in classes.items() if len(paths) > 1}
    assert shared.keys() == SHARED_CLASSES.keys(), shared


def test_module_names_are_unique() -> None:
    modules = defaultdict(list)
    for path, _ in sources(*PACKAGES):
        if not Path(path).name.startswith("__"):
            modules[Path(path).stem].append(path)
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert shared.keys() == SHARED_MODULES.keys(), shared
