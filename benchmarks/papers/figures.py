"""The results that the papers print: each cell's mean, its standard deviation if there is one, and its decimals.

`printed.json` has them by table and measure, data set and method, as the papers spell them:

- CBR: Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016.
- LOAM: Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development 2018.
- NLAUC: Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018. No standard deviations.
- NPSVOR: Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. No standard deviations.

Liu, Zhang, Zhou, Yang (FOFO, NeurIPS 2018) print curves only.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Figures", "Printed", "printed", "printed_cells"]

_FILE = Path(__file__).with_name("printed.json")


class Printed(NamedTuple):
    """A result as a paper prints it; shares are from 0 to 1 here, also where the paper has per cent."""

    mean: float
    sd: float | None
    rounding: float  # half a unit of the last decimal

    @classmethod
    def of(cls, text: str, unit: float) -> Printed:
        """Read `0.823 ± 0.046`, in units of `unit`."""
        mean, _, sd = text.partition(" ± ")
        decimals = len(mean.partition(".")[2])
        return cls(unit * float(mean), unit * float(sd) if sd else None, unit * 0.5 * 10.0**-decimals)


Figures = Mapping[tuple[str, str], Printed]  # (task, method) -> result


@functools.cache
def _tables() -> dict[str, dict[str, dict[str, str]]]:
    tables: dict[str, dict[str, dict[str, str]]] = json.loads(_FILE.read_text())
    return tables


def printed(table: str, tasks: Mapping[str, str]) -> Figures:
    """Return the results of a table, such as "CBR 3 AUC", for tasks that the paper calls by the names in `tasks`."""
    rows = _tables()[table]
    unit = 0.01 if table.endswith("%") else 1.0
    return {
        (task, method): Printed.of(text, unit) for task, name in tasks.items() for method, text in rows[name].items()
    }


def printed_cells(table: str) -> int:
    """Count the results of a table, those of data sets that are not at hand included."""
    return sum(map(len, _tables()[table].values()))
