"""Imports between packages: layers point down, and a package is imported by its face."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for top in ("rarestream", "learners", "service")
    for path in sorted((ROOT / top).rglob("*.py"))
}
BASE = {"rarestream", "learners", "service"}  # service: its few modules that no layer owns
LOWEST = {"service.wire", "service.storage", "service.auth", "service.telemetry"}
ENGINE = BASE | LOWEST
ALLOWED = {
    "rarestream": {"learners"},
    "learners": set[str](),
    "learners.numerics": {"learners"},
    "learners.algorithms": {"learners", "learners.numerics"},
    "learners.features": {"learners", "learners.numerics"},
    "learners.decisions": {"learners", "learners.numerics", "learners.algorithms", "learners.features"},
    "learners.metrics": {"learners", "learners.numerics"},
    "service": {"rarestream", "learners"},
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
ALLOWED["learners"] = {name for name in ALLOWED if name.startswith("learners.")}


def package_of(module: str) -> str:
    """Return the package of `ALLOWED` that contains a module."""
    while module not in ALLOWED:
        module = module.rpartition(".")[0]
    return module


def layer_of(package: str) -> str:
    return "learners" if package.startswith("learners.") else package


def imports() -> Iterator[tuple[str, str]]:
    """Yield (module, imported module) for each import between our modules, lazy and type-only imports included."""
    for module, path in FILES.items():
        if module == "service.__main__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((module, name.name) for name in node.names if name.name in FILES)
            elif isinstance(node, ast.ImportFrom) and node.module in FILES:
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    yield module, inner if inner in FILES else node.module


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
        face = ast.parse(FILES[target.rpartition(".")[0]].read_text())
        exported = next(
            (ast.literal_eval(node.value) for node in face.body if isinstance(node, ast.Assign)), list[str]()
        )
        if target.rpartition(".")[2] not in exported:
            inner.add(f"{module} imports {target}")
    assert not inner


def test_only_the_command_line_and_the_server_print_or_exit() -> None:
    loud = set()
    for module, path in FILES.items():
        if package_of(module) in ("service.cli", "service.server"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "exit", "sys.exit", "os._exit"):
                loud.add(f"{module}:{node.lineno}")
    assert not loud


def test_packages_are_small_and_name_their_entry_point() -> None:
    for module, path in FILES.items():
        if path.name != "__init__.py":
            continue
        modules = [file for file in path.parent.glob("*.py") if file.name != "__init__.py"]
        assert len(modules) <= {"service": 8, "learners": 14}.get(module, 21), module
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, module
        assert len(docstring.splitlines()) <= 20, module
