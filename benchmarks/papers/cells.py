"""Cells: the runs behind the tables; each is stored in a separate file as soon as it is finished.

A cell's file is named after a hash of everything that its figures depend on: protocol, task, method, data, and the
sources of the algorithm and of this package. So an edit or another setting never meets a stale figure, and tables that
show two measures of one run share it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import learners
from benchmarks.papers.datasets import Data, Task, file_of, fingerprint, make
from benchmarks.papers.protocol import Method, Protocol, Table
from benchmarks.papers.running import Unfit, run
from learners import algorithms

__all__ = ["Cell", "cells_of", "finish", "read"]

_LIBRARY = Path(learners.__file__).parent
_FOLDER = Path(__file__).parent
_OURS = ("datasets", "measures", "protocol", "running", "scaling", "splits")  # what a figure depends on here


@dataclass(frozen=True)
class Cell:
    """One run: a method on one split of a task."""

    protocol: Protocol
    task: Task
    method: Method
    trial: int
    fold: int

    def path(self, folder: Path, out: Path) -> Path:
        """Return the file of its results, for a folder of data sets."""
        cell = replace(self, protocol=replace(self.protocol, most_runs=None))  # changes no run
        parts = {**asdict(cell), "data": fingerprint(folder, self.task), "sources": sources(self.method)}
        key = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()
        name = re.sub(r"[^\w.-]+", "_", f"{self.task.name}-{self.method.name}-{self.trial}.{self.fold}-{key}.json")
        return out / "cells" / name


def cells_of(table: Table, folder: Path) -> list[Cell]:
    """List the runs of a table, split by split, for tasks with a data file and methods with an algorithm."""
    return [
        Cell(table.protocol, task, method, trial, fold)
        for task in table.tasks
        if all(file_of(folder, name) for name in task.files)
        for trial, fold in table.protocol.runs(task)
        for method in table.methods  # those of one split in a row: they share its embedding
        if method.algorithm in algorithms()
    ]


def finish(cell: Cell, folder: Path, out: Path) -> None:
    """Run the cell and keep its figures, or why there are none: the file is there entirely or not at all."""
    result: dict[str, Any]
    try:
        data = _data(folder, cell.task, cell.protocol.rows)
        result = run(cell.protocol, cell.method, cell.task, data, cell.trial, cell.fold)
    except Unfit as reason:
        result = {"unfit": str(reason)}
    except ValueError as error:
        result = {"failed": str(error)}
    path = cell.path(folder, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({"cell": asdict(cell), "result": result}))
    partial.replace(path)


def read(cell: Cell, folder: Path, out: Path) -> dict[str, Any] | None:
    """Read the results of a finished cell."""
    path = cell.path(folder, out)
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text())["result"]
    return result


@functools.lru_cache(maxsize=2)
def _data(folder: Path, task: Task, most: int | None) -> Data:
    return make(folder, task, most)


def sources(method: Method) -> str:
    """Hash the code that decides what the method does, without comments and layout."""
    modules = [algorithms()[method.algorithm].__name__, "learners.algorithms.base", "learners.decisions.threshold"]
    if method.embedding:
        modules.append("learners.features.kernel_approximation")
    return _hash_of(tuple(modules))


@functools.cache
def _hash_of(modules: tuple[str, ...]) -> str:
    files: set[Path] = set()
    waiting = [_file_of(name) for name in modules]
    while waiting:
        file = waiting.pop()
        if file is not None and file not in files:
            files.add(file)
            waiting += _imports(file)
    digest = hashlib.blake2b(digest_size=8)
    for file in [*sorted(files), *(_FOLDER / f"{name}.py" for name in _OURS)]:
        digest.update(f"{file.name} {ast.dump(ast.parse(file.read_bytes()))}".encode())
    return digest.hexdigest()


def _imports(file: Path) -> list[Path]:
    """List the files of the library that a file of it imports from; of a package, those that define the names."""
    files = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("learners."):
            for alias in node.names:
                value = getattr(importlib.import_module(node.module), alias.name)
                name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", node.module)
                files.append(_file_of(name) or _file_of(node.module))
    return [file for file in files if file is not None]


def _file_of(module: str) -> Path | None:
    """Return the file of a module of the library; None for a package and for other libraries."""
    file = _LIBRARY.parent / f"{module.replace('.', '/')}.py"
    return file if file.is_relative_to(_LIBRARY) and file.is_file() else None
