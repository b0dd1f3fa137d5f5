"""The naive definitions of the live metrics against scikit-learn, where it has them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import metrics as sk

from learners.metrics.definitions import MetricSettings
from tests.learners.metrics.naive_metrics import exact_figures

# figures that scikit-learn does not have, or not as a number
OTHERS = {"alert_rate", "auc_interval", "calibration_error", "class_counts", "confusion", "events", "fpr"}
OTHERS |= {"precision_at_k"}


def of_scikit_learn(
    label: NDArray[np.bool_],
    scores: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    called: NDArray[np.bool_],
    settings: MetricSettings,
) -> dict[str, float]:
    """Return the figures that are defined."""
    positives = int(label.sum())
    out = {
        "accuracy": sk.accuracy_score(label, called),
        "brier": sk.brier_score_loss(label, probabilities),
        "log_loss": sk.log_loss(label, probabilities, labels=[False, True]),
    }
    if called.any():
        out["precision"] = sk.precision_score(label, called)
    if positives:
        out |= {
            "average_precision": sk.average_precision_score(label, scores),
            "f1": sk.f1_score(label, called),
            "fbeta": sk.fbeta_score(label, called, beta=settings.beta),
            "recall": sk.recall_score(label, called),
        }
    if 0 < positives < len(label):
        fpr, tpr, _ = sk.roc_curve(label, scores, drop_intermediate=False)
        out |= {
            "auc": sk.roc_auc_score(label, scores),
            "partial_auc": sk.roc_auc_score(label, scores, max_fpr=settings.max_fpr),
            "ks": (tpr - fpr).max(),
            "recall_at_fpr": tpr[fpr <= settings.max_fpr].max(),
        }
        if 0 < called.sum() < len(label):
            out["mcc"] = sk.matthews_corrcoef(label, called)
    return out


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("levels", [1, 3, 1000])
@pytest.mark.parametrize("n", [1, 2, 37, 300])
def test_figures_equal_those_of_scikit_learn(n: int, levels: int, share: float) -> None:
    random = np.random.default_rng(n + levels)
    label = random.random(n) < share
    scores = random.integers(0, levels, n) + 0.3 * levels * label
    probabilities = random.random(n)
    probabilities[random.random(n) < 0.1] = 0.0
    probabilities[random.random(n) < 0.1] = 1.0
    called = random.random(n) < 0.2 + 0.5 * label
    settings = MetricSettings(beta=2.0, max_fpr=float(random.choice([1e-9, 0.05, 0.3, 1.0])), k=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes that are absent
        expected = of_scikit_learn(label, scores, probabilities, called, settings)
    actual = exact_figures(label, scores, probabilities, called, settings)
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=0, abs=1e-12), name
    assert {name for name, value in actual.items() if value is not None} - OTHERS == expected.keys()


def test_the_confusion_adds_up_to_the_rates() -> None:
    random = np.random.default_rng(0)
    label, called = random.random(200) < 0.3, random.random(200) < 0.4
    actual = exact_figures(label, random.normal(size=200), random.random(200), called, MetricSettings())
    tn, fp, fn, tp = sk.confusion_matrix(label, called).ravel().tolist()
    assert actual["confusion"] == {"tp": tp, "fp": fp, "tn": tn, "fn": fn}
    assert actual["fpr"] == pytest.approx(fp / (fp + tn))
    assert actual["alert_rate"] == pytest.approx((tp + fp) / 200)
