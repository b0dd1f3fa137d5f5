"""What an edit compiles again: all kernels that reach it, and no others."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types
from numba.core import config as numba_config

import learners
from learners.numerics import jit, kernel, kernel_reach

pytestmark = pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="kernels run as plain Python")

FILES = {
    "__init__.py": "from tiny.inner import helper\n",
    "constants.py": "import numpy as np\nRATE = 2.0\nTABLE = np.arange(3.0)\nNAMES = ('a', 'b')\nUNUSED = 1\n",
    "inner.py": (
        "from learners.numerics.jit import inlined, kernel\nfrom tiny.other import step\n\n\n"
        "@inlined\ndef helper(x):\n    return step(x) + 1.0\n"
    ),
    "other.py": "from learners.numerics.jit import kernel\n\n\n@kernel\ndef step(x):\n    return x * 3.0\n",
    "extension.py": (
        "from tiny.deep import WIDTH\n\n\ndef load(x):\n    return x\n\n\n"
        "def lowered(builder):\n    return builder, WIDTH\n"
    ),
    "deep.py": "WIDTH = 8\n",
    "records.py": (
        "from typing import NamedTuple\n\n\nclass Pair(NamedTuple):\n    left: float\n    right: float\n\n\n"
        "class Other(NamedTuple):\n    left: float\n"
    ),
    "plain.py": '"""No kernels."""\n\n\ndef words():\n    return "a"\n',
    "kernels.py": (
        "from learners.numerics.jit import kernel\nfrom tiny import constants, helper\n"
        "from tiny.constants import RATE, TABLE\nfrom tiny.extension import load\n"
        "from tiny.plain import words\nfrom tiny.records import Pair\n\n\n"
        "@kernel\ndef of_helper(x):\n    return helper(x)\n\n\n"
        "@kernel\ndef of_rate(x):\n    return x * RATE\n\n\n"
        "@kernel\ndef of_attribute(x):\n    return x * constants.RATE\n\n\n"
        "@kernel\ndef of_table(x):\n    return x * TABLE[0]\n\n\n"
        "@kernel\ndef of_extension(x):\n    return load(x)\n\n\n"
        "@kernel\ndef of_pair(x):\n    return Pair(x, x).left\n\n\n"
        "@kernel\ndef alone(x):\n    return x in {1.0, 2.0}\n"
    ),
}
KERNELS = ("of_helper", "of_rate", "of_attribute", "of_table", "of_extension", "of_pair", "alone")


@pytest.fixture
def digests(tmp_path, monkeypatch):
    """Import the package as it is now, and return the digest of each kernel."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "tiny").mkdir()
    for name, text in FILES.items():
        (tmp_path / "tiny" / name).write_text(text)

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] == "tiny"]:
            del sys.modules[name]
        kernel_reach._described.cache_clear()

    def digests():
        forget()
        importlib.invalidate_caches()
        module = importlib.import_module("tiny.kernels")
        return {name: kernel_reach.reach(getattr(module, name).py_func) for name in KERNELS}

    yield digests
    forget()


@pytest.mark.parametrize(
    ("name", "before", "after", "again"),
    [
        ("plain.py", "No kernels", "No kernel", ""),
        ("plain.py", "return", "return 'b' +", ""),
        ("kernels.py", "\n\n\n", "\n\n\n# a comment\n", ""),
        ("kernels.py", "in {1.0, 2.0}", "in {1.0, 3.0}", "alone"),
        ("constants.py", "UNUSED = 1", "UNUSED = 2", ""),
        ("constants.py", "RATE = 2.0", "RATE = 2", "of_rate of_attribute"),
        ("constants.py", "np.arange(3.0)", "np.arange(3)", "of_table"),
        ("constants.py", "np.arange(3.0)", "np.arange(3.0) + 1.0", "of_table"),
        ("inner.py", "+ 1.0", "+ 2.0", "of_helper"),
        ("inner.py", "@inlined", "@kernel", "of_helper"),
        ("other.py", "3.0", "4.0", "of_helper"),
        ("__init__.py", "inner import helper", "other import step as helper", "of_helper"),
        ("extension.py", "return builder", "return None", "of_extension"),
        ("deep.py", "8", "4", "of_extension"),
        ("deep.py", "8", "8  # lanes", ""),
        ("records.py", "left: float\n    right: float", "right: float\n    left: float", "of_pair"),
        ("records.py", "class Other", "# of others\nclass Other", ""),
    ],
)
def test_an_edit_compiles_again_what_reaches_it(tmp_path, digests, name, before, after, again):
    old = digests()
    path = tmp_path / "tiny" / name
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    new = digests()
    assert {kernel for kernel in KERNELS if new[kernel] != old[kernel]} == set(again.split())


def test_an_edit_of_the_decorators_compiles_all_kernels_again(monkeypatch, digests):
    old = digests()
    module = kernel_reach._module
    monkeypatch.setattr(
        kernel_reach, "_module", lambda name, further: module(name, further) + "# edited" * (name == jit.__name__)
    )
    new = digests()
    assert all(new[name] != old[name] for name in KERNELS)


def test_the_fields_of_a_named_tuple_count_as_types_of_arguments(tmp_path, digests):
    def types_of(name):
        digests()
        pair = getattr(sys.modules["tiny.records"], name)
        values = [types.NamedUniTuple(types.float64, len(pair._fields), pair)]
        return kernel_reach.reach_of_types(values), kernel_reach.reach_of_types([types.Tuple([*values, types.int64])])

    old, other = types_of("Pair"), types_of("Other")
    path = tmp_path / "tiny" / "records.py"
    path.write_text(path.read_text().replace("left: float\n    right", "right: float\n    left", 1))
    new = types_of("Pair")
    assert len({*old, *new}) == 4
    assert types_of("Other") == other


OPAQUE = object()


@kernel
def _of_an_object(x):
    return x if OPAQUE is None else -x


def test_a_value_whose_change_cannot_be_noticed_is_refused():
    with pytest.raises(TypeError, match=r"_of_an_object: the cache cannot tell whether <object .* changes"):
        kernel_reach.reach(_of_an_object.py_func)


@kernel
def _even(n):
    return True if n == 0 else _odd(n - 1)


@kernel
def _odd(n):
    return False if n == 0 else _even(n - 1)


def test_kernels_that_call_each_other_have_a_digest():
    assert kernel_reach.reach(_even.py_func) != kernel_reach.reach(_odd.py_func)


EVERY = """
import importlib, json, pkgutil, sys
import learners
from numba.core.dispatcher import Dispatcher
from learners.numerics.kernel_reach import reach
for module in pkgutil.walk_packages(learners.__path__, "learners."):
    importlib.import_module(module.name)
kernels = {value.py_func for name, module in list(sys.modules.items()) if name.startswith("learners.")
           for value in vars(module).values() if isinstance(value, Dispatcher)}
json.dump({f"{item.__module__}.{item.__qualname__}": reach(item).hex() for item in kernels}, sys.stdout)
"""


@pytest.mark.integration
def test_an_edit_in_a_copy_of_the_library_compiles_again_what_reaches_it(tmp_path):
    """In processes, because the library is imported under its own name."""
    package = tmp_path / "learners"
    shutil.copytree(Path(learners.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def digests():
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        output = subprocess.run(
            [sys.executable, "-c", EVERY], env=environment, cwd=tmp_path, capture_output=True, check=True
        ).stdout
        return json.loads(output)

    def edit(name, before, after):
        path = package / name
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after, 1))

    old = digests()
    assert len(old) > 250
    edit("config.py", "from __future__", "# A comment.\nfrom __future__")
    edit("algorithms/auc/cbr.py", "@kernel", "# A comment.\n@kernel")
    edit("numerics/simd.py", "import operator", "import operator  # A comment.")
    assert digests() == old
    edit("numerics/arrays.py", "_ATANH = tuple(2.0", "_ATANH = tuple(3.0")
    edit("algorithms/auc/cbr.py", "class State(NamedTuple):", "class State(NamedTuple):\n    further: Vector")
    new = digests()
    again = {name for name in old if new[name] != old[name]}
    assert {"learners.numerics.arrays.log", "learners.metrics.definitions.log_loss"} <= again
    assert not {"learners.numerics.arrays.exp", "learners.algorithms.auc.cbr_diag._learn_dense"} & again
    edit("numerics/simd.py", "_FLOATS = (types.float64, types.float32)", "_FLOATS = (types.float32, types.float64)")
    newer = digests()
    again = {name for name in new if newer[name] != new[name]}
    assert {"learners.numerics.arrays.dot", "learners.algorithms.auc.cbr_diag._learn_dense"} <= again
    assert not {"learners.numerics.arrays.exp", "learners.numerics.hashing.mix"} & again


def test_numbers_of_another_type_count():
    assert kernel_reach._value(np.uint64(1), [], []) != kernel_reach._value(np.int64(1), [], [])
    assert kernel_reach._value(0.0, [], []) != kernel_reach._value(-0.0, [], [])
    assert kernel_reach._value(1, [], []) != kernel_reach._value(True, [], [])
