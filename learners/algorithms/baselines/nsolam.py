"""SOLAM behind an embedding: nonlinear stochastic online AUC maximization (NSOLAM).

The algorithm is exactly `solam`; only the embedding in front of it and the defaults differ. Embedded rows have lengths
up to about 1 in many directions, so a ranker of them needs a larger ball and larger steps. R and c come from
prequential AUC on embedded public data; the defaults of `solam` are about .03 worse there.

O(dim) time per event and memory, dim being that of the embedding.

References
----------
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, where it is a baseline; Ying, Wen,
Lyu. Stochastic Online AUC Maximization. NeurIPS 2016.
Departure: as in `solam`.
"""

from __future__ import annotations

from dataclasses import dataclass

from learners.algorithms.base import Traits
from learners.algorithms.baselines import solam
from learners.algorithms.baselines.solam import State, init, learn, weights
from learners.settings import param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=solam.TRAITS.cost,
    halved=solam.TRAITS.halved,
    defaults={"embedding": {"kind": "nystroem"}},
)


@dataclass(frozen=True)
class Params(solam.Params):
    """Settings of nsolam: those of solam with defaults for embedded rows."""

    R: float = param(4.0, "radius of the ball that the weights stay in", least=2.0**-20, most=2.0**20)
    c: float = param(8.0, "step size", above=0, most=2.0**10)
