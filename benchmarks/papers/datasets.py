"""The public data sets of the papers: where each can be had, how its file is read, and the tasks made of it.

A folder holds NAME.npz with `X` (n, d), or the parts `data, indices, indptr, shape` of a CSR matrix, and `y`, the
labels as the source has them, whole numbers; or NAME.svm, LIBSVM's text format (needs scikit-learn).
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learners.numerics.arrays import Counts, Matrix, Rows, Sparse, Vector, length

__all__ = ["PAGES", "WIDEST_DENSE", "Data", "Task", "dense", "file_of", "fingerprint", "load", "make", "pick", "stack"]

WIDEST_DENSE = 1024  # columns up to which sparse rows are written out for an algorithm that takes dense ones only

_UCI = "https://archive.ics.uci.edu/dataset/"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"

PAGES: dict[str, str] = {
    "a9a": f"{_LIBSVM}binary.html#a9a",
    "a9a_test": f"{_LIBSVM}binary.html#a9a (a9a.t)",
    "australian": f"{_LIBSVM}binary.html#australian",
    "cod-rna": f"{_LIBSVM}binary.html#cod-rna",
    "covtype": f"{_LIBSVM}multiclass.html#covtype (scaled or raw, all 7 classes)",
    "diabetes": f"{_LIBSVM}binary.html#diabetes",
    "diabetic": f"{_UCI}329/diabetic+retinopathy+debrecen",
    "eeg_eye": f"{_UCI}264/eeg+eye+state",
    "farm-ads": f"{_UCI}218/farm+ads",
    "faults": f"{_UCI}198/steel+plates+faults (label: the number of the fault's column, 1 to 7)",
    "german": f"{_UCI}144/statlog+german+credit+data (german.data-numeric)",
    "glass": f"{_UCI}42/glass+identification (label: the type, 1 to 7)",
    "heart": f"{_LIBSVM}binary.html#heart",
    "hill-valley": f"{_UCI}166/hill+valley (Hill_Valley_without_noise_Training)",
    "ijcnn1": f"{_LIBSVM}binary.html#ijcnn1",
    "ionosphere": f"{_UCI}52/ionosphere (label: g = 1, b = -1)",
    "magic04": f"{_UCI}159/magic+gamma+telescope (label: g = 1, h = -1)",
    "ord_era": "https://github.com/ayrna/orca-python (ERA)",
    "ord_esl": "https://github.com/ayrna/orca-python (ESL)",
    "ord_lev": "https://github.com/ayrna/orca-python (LEV)",
    "ord_swd": "https://github.com/ayrna/orca-python (SWD)",
    "reuters21578_tfidf": f"{_UCI}137/reuters+21578+text+categorization+collection (ModApte, one topic each, tf-idf)",
    "satimage": f"{_UCI}146/statlog+landsat+satellite (sat.trn)",
    "segment": f"{_LIBSVM}multiclass.html#segment",
    "skin": f"{_UCI}229/skin+segmentation",
    "spambase": f"{_UCI}94/spambase",
    "svmguide3": f"{_LIBSVM}binary.html#svmguide3 (svmguide3, then svmguide3.t)",
    "treebank_npsvor": "https://github.com/huadong2014/LinearNPSVOR (Treebank.train, then Treebank.test)",
    "usps": f"{_LIBSVM}multiclass.html#usps (digits 0 to 9)",
    "usps_test": f"{_LIBSVM}multiclass.html#usps (usps.t)",
    "vehicle": f"{_UCI}149/statlog+vehicle+silhouettes (label: opel 1, saab 2, bus 3, van 4)",
    "w8a": f"{_LIBSVM}binary.html#w8a",
    "wilt": f"{_UCI}285/wilt (training, then testing; label: w = 1, n = -1)",
}


@dataclass(frozen=True)
class Task:
    """A data set with its target: these labels against the others, or, without labels, the rank."""

    file: str
    positive: tuple[int, ...] = ()  # labels that are +1; none: the labels are ordered ranks
    test: str | None = None  # the file of the test part, if the set has one
    train: int | None = None  # the first so many rows are the training part, the others the test part
    share: float | None = None  # positives are thinned out, at random, until they are this share
    first: int | None = None  # only so many rows, from the first on
    rows: int | None = None  # a sample of so many rows
    ranges: tuple[tuple[float, float], ...] = ()  # of the columns before the source scaled them, to scale them back

    @property
    def name(self) -> str:
        """The set, its positive classes, and the share of positives where that was changed."""
        if not self.positive:
            return self.file
        first, last = self.positive[0], self.positive[-1]
        run = len(self.positive) > 2 and self.positive == tuple(range(first, last + 1))
        classes = f"{first}-{last}" if run else ",".join(map(str, self.positive))
        return f"{self.file} [{classes}]" + (f" {self.share:.0%}" if self.share else "")

    @property
    def divided(self) -> bool:
        """Whether the set comes with a test part."""
        return self.test is not None or self.train is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files it needs."""
        return (self.file, self.test) if self.test else (self.file,)


@dataclass(frozen=True, eq=False)
class Data:
    """Rows with labels -1 and +1, or ranks from 1."""

    rows: Rows
    dim: int
    y: Vector
    train: int | None  # number of rows of the training part, which comes first, if the set is divided


def file_of(folder: Path, name: str) -> Path | None:
    """Return the file of a data set, or None."""
    candidates = (folder / f"{name}{ending}" for ending in (".npz", ".svm"))
    return next((path for path in candidates if path.is_file()), None)


def fingerprint(folder: Path, task: Task) -> str:
    """Hash the files of a task."""
    return "-".join(_digest(path) for name in task.files if (path := file_of(folder, name)))


@functools.cache
def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def load(folder: Path, name: str) -> tuple[Rows, int, Counts]:
    """Rows, columns and labels of a file. Raises FileNotFoundError, and ValueError for a file of another form."""
    path = file_of(folder, name)
    if path is None:
        raise FileNotFoundError(f"{folder} has no {name}.npz and no {name}.svm")
    if path.suffix == ".svm":
        from sklearn.datasets import load_svmlight_file  # of the test extra, for this format only

        matrix, y = load_svmlight_file(str(path))
        matrix.sort_indices()
        rows = Sparse(matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64))
        dim = int(matrix.shape[1])
        if dim <= WIDEST_DENSE and matrix.nnz > 0.5 * matrix.shape[0] * dim:
            return dense(rows, dim), dim, y.astype(np.int64)
        return rows, dim, y.astype(np.int64)
    with np.load(path, allow_pickle=False) as parts:
        if "y" not in parts or ("X" not in parts and "shape" not in parts):
            raise ValueError(
                f"{path} has the arrays {', '.join(parts)}; expected y, and X or the parts of a CSR matrix"
            )
        y = parts["y"].astype(np.int64)
        if "X" in parts:
            X = np.ascontiguousarray(parts["X"], dtype=np.float64)
            return X, X.shape[1], y
        indices, indptr = parts["indices"].astype(np.int64), parts["indptr"].astype(np.int64)
        return Sparse(parts["data"].astype(np.float64), indices, indptr), int(parts["shape"][1]), y


def make(folder: Path, task: Task, most: int | None = None) -> Data:
    """Load the data of a task; with `most`, a sample of that many rows with the same class shares."""
    rows, dim, labels = load(folder, task.file)
    train = task.train
    if task.test:
        more, columns, others = load(folder, task.test)
        train, dim = len(labels), max(dim, columns)
        rows, labels = stack(rows, more), np.concatenate([labels, others])
    if task.positive:
        y = np.where(np.isin(labels, task.positive), 1.0, -1.0)
        if len(np.unique(y)) < 2:
            raise ValueError(
                f"{task.file} has labels {sorted(set(labels.tolist()))}; expected {task.positive} and others"
            )
    else:
        y = 1.0 + np.unique(labels, return_inverse=True)[1].reshape(-1)
    if task.ranges:
        if isinstance(rows, Sparse) or dim != len(task.ranges):
            raise ValueError(f"{task.file} has {dim} columns; expected {len(task.ranges)} dense ones")
        rows = _scaled_back(rows, task.ranges)
    random = np.random.default_rng(zlib.crc32(task.name.encode()))
    picked = np.arange(len(y))[: task.first]
    if task.share:
        picked = _thinned(y, task.share, random)
    most = min((limit for limit in (most, task.rows) if limit is not None), default=None)
    if most is not None and len(picked) > most:
        picked = _sample(picked, y, most, train, random)
    if len(picked) < len(y):
        rows, y = pick(rows, picked), y[picked]
        train = None if train is None else int((picked < train).sum())
    return Data(rows, dim, y, train)


def _scaled_back(X: Matrix, ranges: tuple[tuple[float, float], ...]) -> Matrix:
    """Undo a linear scaling of each column (n, k), by the range of its raw numbers."""
    low, high = np.array(ranges).T
    least, largest = X.min(axis=0), X.max(axis=0)
    return np.ascontiguousarray(low + (X - least) / (largest - least) * (high - low))


def _thinned(y: Vector, share: float, random: np.random.Generator) -> Counts:
    """Rows in their order, with as many positives left out, at random, as makes them `share`."""
    positives, negatives = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
    count = min(len(positives), max(1, round(share / (1 - share) * len(negatives))))
    return np.sort(np.concatenate([negatives, random.choice(positives, count, replace=False)]))


def _sample(candidates: Counts, y: Vector, most: int, train: int | None, random: np.random.Generator) -> Counts:
    """Pick about `most` of `candidates` in order: from each class and part its share, but 30 if there are as many."""
    part = (candidates >= train) if train is not None else np.zeros(len(candidates), dtype=bool)
    selection = []
    for label in np.unique(y[candidates]):
        for side in (False, True):
            rows = candidates[(y[candidates] == label) & (part == side)]
            count = min(len(rows), max(30, round(most * len(rows) / len(candidates))))
            selection.append(random.choice(rows, count, replace=False))
    return np.sort(np.concatenate(selection))


def pick(rows: Rows, index: NDArray[np.int64]) -> Rows:
    """Return the rows with these numbers, in this order."""
    if not isinstance(rows, Sparse):
        return np.ascontiguousarray(rows[index])
    sizes = np.diff(rows.indptr)[index]
    indptr = np.zeros(len(index) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    at = np.repeat(rows.indptr[index] - indptr[:-1], sizes) + np.arange(indptr[-1])
    return Sparse(rows.data[at], rows.indices[at], indptr)


def stack(first: Rows, second: Rows) -> Rows:
    """Concatenate two sets of rows."""
    if isinstance(first, Sparse) and isinstance(second, Sparse):
        return Sparse(
            np.concatenate([first.data, second.data]),
            np.concatenate([first.indices, second.indices]),
            np.concatenate([first.indptr, first.indptr[-1] + second.indptr[1:]]),
        )
    if isinstance(first, Sparse) or isinstance(second, Sparse):
        raise ValueError("the training part and the test part must both be dense, or both sparse")
    return np.concatenate([first, second])


def dense(rows: Sparse, dim: int) -> Matrix:
    """Return the rows as a dense matrix."""
    X = np.zeros((length(rows), dim))
    X[np.repeat(np.arange(length(rows)), np.diff(rows.indptr)), rows.indices] = rows.data
    return X
