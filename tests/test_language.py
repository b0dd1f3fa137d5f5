"""Names follow the language of the field: no pronouns or participles, and one meaning for each class and module."""

from __future__ import annotations

import ast
import functools
import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[1]
PACKAGES = ("rarestream", "learners", "service")
FOLDERS = ("rarestream", "learners", "service", "benchmarks", "docker", "tests")

PRONOUNS_AND_PARTICIPLES = (
    "one own told tell tells asked said says known knows found kept keeps held given met come stand due elsewhere "
    "begun gone shown sent wanted chosen taken came coming meant heard drawn lost who whom whose these those some its "
    "both here there"
)

NO_VERBS = (
    "a all an and any as at before both but by each every few for from how if in into it its many most much no none "
    "not nothing now of on once one only or other same several since so some such that the their them then there these "
    "this those to under until what when where whether which while who why with without"
)

# Names that users or stored data depend on.
KEPT_NAMES = {
    ("learners/algorithms/_crosses.py", "chosen"),  # an array of stored states
    ("learners/algorithms/baselines/omcsl.py", "drawn"),  # an array of stored states
    ("learners/algorithms/baselines/opaucs.py", "kept"),  # an array of stored states
    ("service/api/schemas/groups.py", "gone"),  # a member of a document
    ("service/datasets/packed_text.py", "tell"),  # a method of files
    ("service/settings.py", "elsewhere"),  # a setting
}

SHARED_CLASSES = {
    "Params": "every algorithm has one: the protocol of `learners.algorithms.base`",
    "State": "every algorithm has one: the protocol of `learners.algorithms.base`",
    "UpdateResult": "public in the client, and a component of the OpenAPI document",
    "ScoreExplanation": "public in the client and in the library, for the same thing",
}

SHARED_MODULES = {
    **dict.fromkeys(
        ("events", "groups", "learners", "metrics", "node", "thresholds"), "a route and its schemas, in two packages"
    ),
    "errors": "the exceptions of the client, and those of the service",
    "settings": "the settings of learners, and those of the service",
}


class Module(NamedTuple):
    """What a source defines."""

    path: str
    names: list[tuple[int, str]]  # with their lines
    classes: list[str]


def syntax_tree(path: Path) -> ast.Module:
    """Parse a module without garbage collections, in which threads may change: CPython 3.11 parses one at a time."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


@functools.cache  # several tests read the same folders
def modules_in(folder: str) -> list[Module]:
    result = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        nodes = list(ast.walk(syntax_tree(path)))
        classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        result.append(Module(str(path.relative_to(ROOT)), list(names_in(nodes)), classes))
    return result


def names_in(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield each name that a module defines, as an argument, by assignment or as an attribute, with its line."""
    for node in nodes:
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
        f"{module.path}:{line} {name}"
        for module in modules_in(folder)
        for line, name in module.names
        if name.strip("_").lower() in words and (module.path, name) not in KEPT_NAMES
    ]
    assert not wrong


def code_of(script: str) -> str:
    """Return JavaScript without comments and texts, but with the expressions in templates."""
    script = re.sub(r"/\*.*?\*/", "", script, flags=re.DOTALL)
    script = re.sub(r"(^|[^:])//.*", r"\1", script)
    script = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', script)
    script = re.sub(r"'(?:[^'\\\n]|\\.)*'", "''", script)
    return re.sub(r"`[^`]*`", lambda template: " ".join(re.findall(r"\$\{([^}]*)\}", template[0])), script)


def test_names_of_the_dashboard_are_neither_pronouns_nor_participles() -> None:
    foreign = {"some", "gone"}  # a method of arrays, a member of documents
    names = set(PRONOUNS_AND_PARTICIPLES.split()) - foreign
    words = re.compile(rf"(?<![\w-])_*({'|'.join(names)})_*(?![\w-])", re.IGNORECASE)
    scripts = sorted((ROOT / "service" / "dashboard").glob("*.js"))
    assert scripts
    wrong = [f"{path.name}: {word[0]}" for path in scripts for word in words.finditer(code_of(path.read_text()))]
    assert not wrong


@pytest.mark.parametrize("folder", PACKAGES)
def test_docstrings_of_functions_start_with_a_verb(folder: str) -> None:
    """ruff's D401 knows forms of verbs: it lets a docstring pass that starts with none."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {text.splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        and (text := ast.get_docstring(node))
        and text.split()[0].strip(".,:;").lower() in NO_VERBS.split()
    ]
    assert not wrong


def test_modules_named_in_the_sources_exist() -> None:
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    paths = [path.as_posix() for path in sources]
    missing = [
        f"{source.relative_to(ROOT)}: {name}"
        for source in sources
        for name in re.findall(r"`([\w/]+\.py)`", source.read_text())
        if not any(path.endswith(f"/{name}") for path in paths)
    ]
    assert not missing


def test_every_exception_is_in_use() -> None:
    modules = [module for folder in PACKAGES for module in modules_in(folder)]
    assert {(module.path, name) for module in modules for _, name in module.names} >= KEPT_NAMES


def test_class_names_are_unique() -> None:
    classes = defaultdict(list)
    for folder in PACKAGES:
        for module in modules_in(folder):
            for name in module.classes:
                classes[name].append(module.path)
    shared = {name: paths for name, paths in classes.items() if len(paths) > 1}
    assert shared.keys() == SHARED_CLASSES.keys(), shared


def test_module_names_are_unique() -> None:
    modules = defaultdict(list)
    for folder in PACKAGES:
        for path in (ROOT / folder).rglob("*.py"):
            if not path.name.startswith("__"):
                modules[path.stem].append(str(path))
    shared = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert shared.keys() == SHARED_MODULES.keys(), shared
