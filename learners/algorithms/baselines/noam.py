"""OAM_seq behind an embedding: nonlinear online AUC maximization with class buffers (NOAM).

The algorithm is exactly `oam`; only the embedding in front of it and the defaults differ. Embedded rows have lengths up
to about 1. C, and a buffer of the last examples instead of a sample, come from prequential AUC on embedded public data;
the defaults of `oam` are about .03 worse there.

O(capacity * dim) time per event and memory, dim being that of the embedding.

References
----------
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, where it is a baseline; Zhao, Hoi,
Jin, Yang. Online AUC Maximization. ICML 2011.
Departures: those of `oam`; "fifo" by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from learners.algorithms.base import Traits
from learners.algorithms.baselines import oam
from learners.algorithms.baselines.oam import State, init, learn, problems, weights
from learners.settings import param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=oam.TRAITS.cost,
    halved=oam.TRAITS.halved,
    defaults={"embedding": {"kind": "nystroem"}},
)


@dataclass(frozen=True)
class Params(oam.Params):
    """Settings of noam: those of oam with defaults for embedded rows."""

    C: float = param(2.0**-7, "cap of a step: how far one pair may move the ranker", above=0, most=2.0**20)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")
