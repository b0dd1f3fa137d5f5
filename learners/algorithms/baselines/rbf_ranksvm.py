"""Kernel ranking SVM with the squared hinge (RBF-RankSVM): NBAUC with every retained event as a landmark.

    f = sum alpha_i k(x_i, .),   |f|^2 / 2 + (C / 2) mean over (positive, negative) pairs of max(0, 1 - (f_i - f_j))^2

With all n events as landmarks, phi(x_i).phi(x_j) is k(x_i, x_j) itself (up to eigenvalues below 1e-8 of the largest),
so `learners.algorithms.auc.nbauc` behind that embedding minimises this objective. An embedding takes all rows as
landmarks if there are no more rows than components. The defaults retain 2000 events and allow 2000 landmarks. Set
`refit_window` to at most `components`; otherwise this is NBAUC with k-means landmarks.

Per fit, O(n^3) time for the eigenvectors of the kernel matrix and O(n^2) for each product of the solver, O(n^2) memory;
per score, O(n dim + n^2).

References
----------
Joachims. A Support Vector Method for Multivariate Performance Measures. ICML 2005, the ranking SVM for AUC.
Chapelle, Keerthi. Efficient algorithms for ranking with SVMs. Information Retrieval 13, 2010, the squared hinge and the
nonlinear case.
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, whose RBF-RankSVM this is.
Departures: solved in the space of the eigenvectors of the kernel matrix; the mean over pairs, see
`learners.algorithms.auc.nbauc`.
"""

from __future__ import annotations

from learners.algorithms.auc import Params, State, fit, init, nbauc, weights
from learners.algorithms.base import Traits

__all__ = ["TRAITS", "Params", "State", "fit", "init", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=nbauc.TRAITS.cost._replace(order="O(dim) per event; a fit O(n^3) for n retained events"),
    halved=nbauc.TRAITS.halved,
    defaults={
        "embedding": {"kind": "nystroem", "components": 2000},
        "learner": {"refit_window": 2000},
    },
)
