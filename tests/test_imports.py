"""Imports between packages: layers point down, and a package is imported by its face."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.test_language import syntax_tree

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for top in ("rarestream", "learners", "service")
    for path in sorted((ROOT / top).rglob("*.py"))
}
BASE = {"rarestream", "rarestream.values", "learners", "service"}  # service: its few modules that no layer owns
LOWEST = {"service.wire", "service.storage", "service.auth", "service.telemetry"}
ENGINE = BASE | LOWEST
ALLOWED = {
    "rarestream.values": set[str](),
    "rarestream": {"learners", "rarestream.values"},
    "learners": {"rarestream.values"},
    "learners.numerics": {"learners"},
    "learners.algorithms": {"learners", "learners.numerics", "learners.features"},  # members of auto have embeddings
    "learners.features": {"learners", "learners.numerics", "rarestream.values"},
    "learners.decisions": {"learners", "learners.numerics", "learners.algorithms", "learners.features"},
    "learners.metrics": {"learners", "learners.numerics"},
    "learners.segments": {"learners", "learners.numerics", "learners.features", "learners.metrics"},
    "service": {"rarestream", "rarestream.values", "learners"},
    "service.wire": BASE,
    "service.storage": BASE,
    "service.auth": BASE,
    "service.telemetry": BASE | {"service.wire"},
    "service.engine": ENGINE,
    "service.api": ENGINE | {"service.engine"},
    "service.server": ENGINE | {"service.engine", "service.api"},
    "service.datasets": BASE,
    "service.connectors": BASE | {"service.datasets", "service.storage"},
    "service.cli": BASE | LOWEST | {"service.server", "service.datasets", "service.connectors"},
}
ALLOWED["learners"] |= {name for name in ALLOWED if name.startswith("learners.")}


def package_of(module: str) -> str:
    """Return the package of `ALLOWED` that contains a module."""
    while module not in ALLOWED:
        module = module.rpartition(".")[0]
    return module


def layer_of(package: str) -> str:
    return "learners" if package.startswith("learners.") else package


class Contents(NamedTuple):
    """What the tests ask of a module."""

    docstring: str | None
    exported: list[str]  # the value of its first assignment: `__all__` in an `__init__.py`
    imports: list[str]  # of our modules, lazy and type-only imports included
    printing: list[int]  # lines that print or exit


PRINT_OR_EXIT = ("print", "exit", "sys.exit", "os._exit", "SystemExit", "sys.stdout", "sys.stdout.write")


@functools.cache
def contents(module: str) -> Contents:
    """Parse a module."""
    tree = syntax_tree(FILES[module])
    assigned = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    face = FILES[module].name == "__init__.py" and assigned
    targets, printing = [], []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                targets += [name.name for name in names if name.name in FILES]
            case ast.ImportFrom(origin, names) if origin in FILES:
                inner = [f"{origin}.{name.name}" for name in names]
                targets += [name if name in FILES else origin for name in inner]
            case ast.Attribute() | ast.Name() if ast.unparse(node) in PRINT_OR_EXIT:
                printing.append(node.lineno)
    return Contents(ast.get_docstring(tree), ast.literal_eval(assigned[0]) if face else [], targets, printing)


def imports() -> Iterator[tuple[str, str]]:
    """Yield (module, imported module) for each import between our modules."""
    for module in FILES.keys() - {"service.__main__"}:
        yield from ((module, target) for target in contents(module).imports)


def test_imports_follow_the_layers() -> None:
    upward = {
        f"{module} imports {target}"
        for module, target in imports()
        if (source := package_of(module)) != (other := package_of(target))
        and other not in ALLOWED[source]
        and layer_of(other) not in ALLOWED[source] - {source.partition(".")[0]}
    }
    assert not upward


def test_other_packages_are_imported_through_their_init() -> None:
    inner = set()
    for module, target in imports():
        source, other = package_of(module), package_of(target)
        if source == other or source.startswith(f"{other}.") or FILES[target].name == "__init__.py":
            continue
        exported = contents(target.rpartition(".")[0]).exported
        if target.rpartition(".")[2] not in exported:
            inner.add(f"{module} imports {target}")
    assert not inner


def test_only_the_command_line_and_the_server_print_or_exit() -> None:
    quiet = [module for module in FILES if package_of(module) not in ("service.cli", "service.server")]
    loud = [f"{module}:{line}" for module in quiet for line in contents(module).printing]
    assert not loud


def test_packages_are_small_and_name_their_entry_point() -> None:
    for module, path in FILES.items():
        if path.name != "__init__.py":
            continue
        modules = [file for file in path.parent.glob("*.py") if file.name != "__init__.py"]
        assert len(modules) <= {"service": 9, "learners": 14}.get(module, 21), module
        docstring = contents(module).docstring
        assert docstring, module
        assert len(docstring.splitlines()) <= 20, module
        if len(modules) > 3 or module == "service":
            assert re.search(r"\b[Ss]tart\b", docstring), f"{module} does not say where to start reading"


def test_tests_mirror_the_packages_in_small_folders() -> None:
    tests = ROOT / "tests"
    for init in sorted(tests.rglob("__init__.py")):
        folder = init.parent.relative_to(tests)
        modules = [file for file in init.parent.glob("*.py") if file.name != "__init__.py"]
        assert len(modules) <= 22, folder
        if folder.parts and folder.parts[0] in BASE:
            assert (ROOT / folder / "__init__.py").is_file(), folder
