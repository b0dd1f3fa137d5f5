"""Golden vectors: numbers that an independent implementation, checked against the papers, arrived at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learners import algorithms
from learners.algorithms._scw import coefficients
from learners.decisions import threshold
from tests.learners.decisions.labelled_streams import as_in_the_papers
from tests.learners.streams import as_sparse, run

_DIRECTORY = Path(__file__).parent / "golden"


def _read(name: str) -> Any:
    return json.loads((_DIRECTORY / f"{name}.json").read_text())


def _cases() -> list[Any]:
    result = []
    for name in ("cbr", "loam_ada"):
        document = _read(name)
        for case in document["cases"]:
            algorithm = algorithms()[case["algorithm"]]
            label = "-".join([case["algorithm"], *(v for v in case["params"].values() if isinstance(v, str))])
            if algorithm.TRAITS.dense:
                result.append(pytest.param(document, case, False, id=f"{label}-dense"))
            if algorithm.TRAITS.sparse:
                result.append(pytest.param(document, case, True, id=f"{label}-sparse"))
    return result


@pytest.mark.parametrize(("document", "case", "sparse"), _cases())
def test_algorithm_matches_the_golden_values(document: Any, case: Any, sparse: bool) -> None:
    algorithm = algorithms()[case["algorithm"]]
    params = algorithm.Params.of(case["params"])
    X, y = np.array(document["x"]), np.array(document["y"])
    for checkpoint in case["checkpoints"]:
        n = checkpoint["after"]
        rows = as_sparse(X[:n]) if sparse else X[:n]
        state, scores = run(algorithm, params, rows, y[:n], dim=X.shape[1], seed=case["seed"])
        np.testing.assert_allclose(scores, case["scores"][:n], rtol=1e-9, atol=1e-12)
        for name in checkpoint.keys() - {"after"}:
            np.testing.assert_allclose(getattr(state, name), checkpoint[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["fofo", "lr", "ofo"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_posterior_matches_the_golden_values(name: str, sparse: bool) -> None:
    document = _read("thresholds")
    X, y = np.array(document["x"]), np.array(document["y"])
    algorithm = algorithms()[name]
    params = algorithm.Params.of({"c": document["c"], "averaging": "last"})
    state, scores = run(algorithm, params, as_sparse(X) if sparse else X, y, dim=X.shape[1])
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), document["probabilities"], rtol=1e-9)
    np.testing.assert_allclose([*state.w, *state.bias], document["w_final"], rtol=1e-9)


@pytest.mark.parametrize("case", _read("thresholds")["cases"], ids=lambda case: str(case["settings"]))
def test_threshold_matches_the_golden_values(case: Any) -> None:
    document = _read("thresholds")
    settings = as_in_the_papers(**case["settings"])
    state = threshold.init(settings)
    n = len(document["y"])
    thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
    p, y = np.array(document["probabilities"]), np.array(document["y"])
    decided, costs, clocks = np.ones(n, dtype=np.bool_), np.ones(n), np.full(n, np.nan)
    threshold.learn(settings, state, p, y, decided, costs, clocks, thresholds, decisions)
    np.testing.assert_allclose(thresholds, case["thetas"], rtol=1e-9, atol=1e-12)


def test_scw_coefficients_match_the_golden_values() -> None:
    document = _read("scw1_coefficients")
    for m, v, cap, alpha, beta in document["rows"]:
        result = coefficients(m, v, cap, document["phi"])
        np.testing.assert_allclose(result[:2], (alpha, beta), rtol=1e-14)
