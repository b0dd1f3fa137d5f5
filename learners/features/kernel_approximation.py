"""Approximate a Gaussian kernel by an embedding phi with phi(x).phi(u) close to it, for linear learners.

    k(x, u) = exp(-|x - u|^2 / b),  b = mean |x - mean|^2 over the warm-up's rows by default

    none      the rows unchanged
    nystroem  phi(x) = e_r^(-1/2) V_r^T k(x, U) with landmarks U, the k-means centres of the warm-up's rows, and
              K(U, U) = V e V^T, eigenvalues below 1e-8 of the largest dropped
    fourier   phi(x) = sqrt(2 / m) cos(W x + p) with W ~ N(0, 2 / b), p ~ uniform on [0, 2 pi): random features, the
              same for any data of one width, with an error of the inner product that falls as m^(-1/2)

Per row, with m components, r <= m eigenvectors, and d columns: nystroem O(m d + m r) time, fourier O(m d). `fit` takes
O(n m d) per round of k-means and O(m^3) for the eigenvectors, on NumPy and scikit-learn: its last bits may differ from
machine to machine, so its result is stored and shared. `transform` uses explicit loops, and this package's own exp
and cos: the same state gives the same bits on every machine and for any batching of the rows.

References
----------
Williams, Seeger. Using the Nystroem Method to Speed Up Kernel Machines. NIPS 2000.
Rahimi, Recht. Random Features for Large-Scale Kernel Machines. NIPS 2007.
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018: k-means landmarks, the width b.
Departure: if the warm-up has no more distinct rows than components, they are the landmarks, and the kernel is exact on
them. For k-means, rows are rounded to 2^-13 of their root mean squared distance from the mean, because it cannot
distinguish closer ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.numerics import Matrix, Precision, Sparse, Vector, exp, kernel, nearest, stored
from learners.settings import Parameters, param

__all__ = ["HALVED", "Embedding", "EmbeddingState", "columns", "fit", "init", "nanoseconds", "shapes", "transform"]

HALVED = ("landmarks", "projection", "frequencies")  # stored in the learner's precision

_GRID = 2.0**13  # k-means works on squares, which resolve about 1e-10 with 10^5 rows and an outlier
_ROUNDS = 100  # of k-means, at most
_SMALLEST_EIGENVALUE = 1e-8  # of the largest
_FARTHEST = 708.0  # squared distance in widths beyond which `exp` is 0
_BLOCK = 16  # rows that are projected together
_COMPONENT = 15.0  # nanoseconds of an exponential or a cosine

# pi in two parts: the first has 33 bits, so that its multiples up to 2^20 are exact (Cody and Waite)
_PI_HIGH = 2 * 1.57079632673412561417
_PI_LOW = 2 * 6.07710050650619224932e-11
_LONGEST_TURN = 3e6  # just below 2^20 pi
_COSINE = tuple((-1.0) ** i / math.factorial(2 * i) for i in range(12))


@dataclass(frozen=True)
class Embedding(Parameters):
    """Settings of the embedding."""

    kind: Literal["none", "nystroem", "fourier"] = param("none", "which nonlinear features")
    components: int = param(
        100,
        "landmarks of nystroem, or features of fourier",
        least=1,
        most=4000,
        applies_to={"kind": ["nystroem", "fourier"]},
    )
    warmup: int = param(1000, "events that landmarks and kernel width are taken from", least=2, most=100_000)
    width: float | None = param(
        None,
        "b in exp(-|x - u|^2 / b); null: the mean squared distance of the warm-up's rows from their mean",
        above=0,
        most=1e100,
    )


class EmbeddingState(NamedTuple):
    """Arrays of the fit; of size 0 before it, and if the kind does not need them."""

    width: Vector  # (1,) b
    landmarks: Matrix  # nystroem: (d, m), one column each
    projection: Matrix  # nystroem: (m, r), V_r e_r^(-1/2), the largest eigenvalue first
    frequencies: Matrix  # fourier: (d, m), one column per feature
    phases: Vector  # fourier: (m,)


def init(settings: Embedding, precision: Precision = "float64") -> EmbeddingState:  # noqa: ARG001
    """Return the state before the fit: an embedding into no columns."""
    nothing, empty = np.zeros(0), np.zeros((0, 0))
    state = EmbeddingState(width=nothing, landmarks=empty, projection=empty, frequencies=empty, phases=nothing)
    return stored(precision, state, HALVED)


def fit(settings: Embedding, rows: Matrix, seed: int, precision: Precision = "float64") -> EmbeddingState:
    """Fit the embedding to `rows` (n, d), finite and at most 1e30 in magnitude, which stay unchanged.

    In precision "float32" the projection is that of the rounded landmarks. The result is reproducible to the bit on one
    machine for one `seed` (0 or more). It shares nothing with a learner, so it may run in its own thread. O(n m d) per
    round of k-means, O(m^3) for the eigenvectors. Raises ValueError without rows.
    """
    if len(rows) == 0:
        raise ValueError("no rows; expected at least one to fit an embedding to")
    state = init(settings, precision)
    if settings.kind == "none":
        return state
    # centred on the first row, then on the mean: otherwise the mean's rounding would give equal rows a spread
    offsets = rows - rows[0]
    offsets -= offsets.mean(axis=0)
    spread = float(np.square(offsets).sum()) / len(rows)
    # if all rows are equal, any width separates them from others
    natural = spread if spread > 0.0 else 1.0
    state = state._replace(width=np.array([natural if settings.width is None else settings.width]))
    if settings.kind == "fourier":
        return stored(precision, _fit_fourier(state, settings.components, rows.shape[1], seed), HALVED)
    landmarks = nearest(precision, _landmarks(rows, offsets, math.sqrt(natural), settings.components, seed))
    assert not isinstance(landmarks, Sparse)
    return stored(precision, _fit_nystroem(state, landmarks), HALVED)


def _fit_fourier(state: EmbeddingState, components: int, dim: int, seed: int) -> EmbeddingState:
    random = np.random.Generator(np.random.PCG64(seed))
    deviation = math.sqrt(2.0) / math.sqrt(state.width[0])  # two roots, as 2 / b may overflow
    frequencies = random.normal(0.0, deviation, (components, dim))
    phases = random.uniform(0.0, 2.0 * math.pi, components)
    return state._replace(frequencies=np.ascontiguousarray(frequencies.T), phases=phases)


def _fit_nystroem(state: EmbeddingState, landmarks: Matrix) -> EmbeddingState:
    """Compute the projection that makes the kernel exact on the `landmarks` (m, d)."""
    m = len(landmarks)
    transposed = np.ascontiguousarray(landmarks.T)
    K = np.empty((m, m))
    _similarities(landmarks, 0, m, transposed, state.width[0], K)
    eigenvalues, vectors = np.linalg.eigh(K)
    significant = np.flatnonzero(eigenvalues >= _SMALLEST_EIGENVALUE * eigenvalues[-1])[::-1]
    vectors = vectors[:, significant]
    # an eigenvector's sign is arbitrary: the component of the largest magnitude is made positive
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(significant))]
    projection = vectors * (np.sign(largest) / np.sqrt(eigenvalues[significant]))
    return state._replace(landmarks=transposed, projection=np.ascontiguousarray(projection))


def _landmarks(rows: Matrix, offsets: Matrix, unit: float, components: int, seed: int) -> Matrix:
    """Choose at most `components` points (m, d) that represent `rows` (n, d).

    `offsets` (n, d) are the rows less their mean, and `unit` is their root mean squared length.
    """
    cells, first, counts = np.unique(np.rint(offsets / unit * _GRID), axis=0, return_index=True, return_counts=True)
    if len(cells) <= components:
        distinct: Matrix = np.unique(rows, axis=0)
        return distinct if len(distinct) <= components else rows[first]
    # these take a second to import, which only embeddings need
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # leave the other cores to the service's other threads
        clusters = KMeans(components, n_init=1, max_iter=_ROUNDS, random_state=seed % 2**32)
        clusters.fit(cells / _GRID, sample_weight=counts.astype(np.float64))
    centres: Matrix = clusters.cluster_centers_ * unit + rows.mean(axis=0)
    return centres


@kernel
def _similarities(X, start, stop, landmarks, width, out):  # type: ignore[no-untyped-def]
    """k(x, u) for the rows of X (n, d) from `start` to `stop` and the columns of `landmarks` (d, m)."""
    m = landmarks.shape[1]
    for i in range(start, stop):
        row = out[i - start]
        row[:] = 0.0
        # the data's columns are the outer loop, so that the inner sums are independent: SIMD in a fixed order
        for k in range(landmarks.shape[0]):
            for j in range(m):
                gap = X[i, k] - landmarks[k, j]
                row[j] += gap * gap
        for j in range(m):
            row[j] = exp(-row[j] / width) if row[j] < _FARTHEST * width else 0.0


@kernel
def _nystroem(X, landmarks, projection, width, out):  # type: ignore[no-untyped-def]
    """Project rows block by block, so that a large projection is read from memory once per block."""
    n, (m, r) = X.shape[0], projection.shape
    K = np.empty((min(n, _BLOCK), m))
    fours = m - m % 4
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        _similarities(X, start, stop, landmarks, width, K)
        out[start:stop] = 0.0
        # four landmarks at once need a quarter of the loads and stores of `out`
        for j in range(0, fours, 4):
            for i in range(start, stop):
                a, b, c, d = K[i - start, j], K[i - start, j + 1], K[i - start, j + 2], K[i - start, j + 3]
                for q in range(r):
                    out[i, q] += (a * projection[j, q] + b * projection[j + 1, q]) + (
                        c * projection[j + 2, q] + d * projection[j + 3, q]
                    )
        for j in range(fours, m):
            for i in range(start, stop):
                for q in range(r):
                    out[i, q] += K[i - start, j] * projection[j, q]


@kernel
def _cos(x):  # type: ignore[no-untyped-def]
    """Compute cos x within 4e-16, in [-1, 1]; beyond 3e6, of an argument off by less than half an ulp.

    C libraries differ in their last bits, as with `exp`.
    """
    if not abs(x) < math.inf:
        return 0.0  # a sum that overflowed has no angle
    x = abs(x)
    if x > _LONGEST_TURN:
        x %= 2.0 * math.pi  # a remainder is exact by definition, so the same everywhere
    k = math.floor(x / math.pi + 0.5)
    r = (x - k * _PI_HIGH) - k * _PI_LOW
    s = r * r
    c = _COSINE
    s2 = s * s
    s4 = s2 * s2
    low = (c[0] + s * c[1]) + s2 * (c[2] + s * c[3])
    middle = (c[4] + s * c[5]) + s2 * (c[6] + s * c[7])
    high = (c[8] + s * c[9]) + s2 * (c[10] + s * c[11])
    value = low + s4 * (middle + s4 * high)
    return -value if k & 1 else value


@kernel
def _fourier(X, frequencies, phases, out):  # type: ignore[no-untyped-def]
    d, m = frequencies.shape
    amplitude = math.sqrt(2.0 / m)
    for i in range(X.shape[0]):
        out[i] = phases
        for k in range(d):
            for j in range(m):
                out[i, j] += X[i, k] * frequencies[k, j]
        for j in range(m):
            out[i, j] = amplitude * _cos(out[i, j])


def transform(settings: Embedding, state: EmbeddingState, rows: Matrix) -> Matrix:
    """Embed `rows` as (n, r), finite for finite rows; the kind none returns `rows`.

    O(m d + m r) per row (nystroem), O(m d) (fourier). r is 0 before the fit. Raises ValueError if `rows` do not have
    the columns of the fit.
    """
    if settings.kind == "none":
        return rows
    out = np.empty((len(rows), columns(state)))
    if not columns(state):
        return out
    dim = len(state.landmarks) + len(state.frequencies)
    if rows.shape[1] != dim:
        raise ValueError(f"rows have {rows.shape[1]} columns; expected {dim}, as in the fit")
    if settings.kind == "nystroem":
        _nystroem(rows, state.landmarks, state.projection, state.width[0], out)
    else:
        _fourier(rows, state.frequencies, state.phases, out)
    return out


def columns(state: EmbeddingState) -> int:
    """Return r, the number of columns of embedded rows: 0 before the fit, and for the kind none."""
    return int(state.projection.shape[1]) + len(state.phases)


def shapes(state: EmbeddingState, dim: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes that valid arrays have for their number of components and data of `dim` columns."""
    landmarks, features = len(state.projection), len(state.phases)
    return {
        "width": (1 if landmarks + features else 0,),
        "landmarks": (dim if landmarks else 0, landmarks),
        "projection": (landmarks, state.projection.shape[1]),
        "frequencies": (dim if features else 0, features),
        "phases": (features,),
    }


def nanoseconds(settings: Embedding, dim: int) -> float:
    """Estimate the cost of a row of `dim` columns, on one core of a server."""
    parts = settings.components
    projected = parts if settings.kind == "nystroem" else 0
    return parts * (_COMPONENT + 0.5 * dim + 0.3 * projected)
