"""Ensembles of decision trees as arrays: scores, exact attributions, checks. Shared by the algorithms of trees.

    score(x) = bias + sum over the trees of the value of the leaf that x falls into

The nodes of a tree are in pre-order: the left child of node i is i + 1, the right child is `right[i]`, and `right[i]` 0
marks a leaf. So every path moves forward, and ends. An event goes left if its number is at most the threshold, or is
NaN and `missing[i]` is 1.

Trees read the columns `columns`, which a fit chooses (`chosen_columns`): all columns of dense rows; of sparse rows the
columns that most events have. Any other column has no effect on the score until a later fit chooses it.

A score takes O(trees * depth) time, after O(non-zeros * log columns) for sparse rows. Attributions take
O(leaves * depth^2).

References
----------
Lundberg, Erion, Lee. Consistent Individualized Feature Attribution for Tree Ensembles. 2018 (arXiv:1802.03888),
Algorithm 2. Departure: leaf by leaf instead of by recursion, and several columns may be one player.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Counts, Issues, Matrix, Rows, Sparse, Vector, bare_kernel, grown, kernel

__all__ = [
    "MAX_DEPTH",
    "TreeNodes",
    "Trees",
    "attributions",
    "chosen_columns",
    "columns_of_rows",
    "empty",
    "examples",
    "gather",
    "grow_columns",
    "joined",
    "score_leaves",
    "tree_problems",
    "tree_scores",
]

MAX_DEPTH = 64  # splits above a leaf: bounds the time and memory of an attribution
_MAX_NUMBERS = 2**23  # of the columns of sparse rows that a fit reads


class Trees(NamedTuple):
    """An ensemble of k trees with m nodes, for rows of `dim` columns."""

    gain: Vector  # (dim,) by how much the splits on each column lowered the loss in the fit, at least 0
    columns: Counts  # (c,) that the trees read, ascending, below dim
    starts: Counts  # (k,) first node of each tree
    right: NDArray[np.int32]  # (m,) right child; 0: a leaf
    slot: NDArray[np.int32]  # (m,) place in `columns` of the column that the node splits on; of a leaf 0
    missing: NDArray[np.int8]  # (m,) 1: NaN goes left
    threshold: Vector  # (m,) numbers up to it go left; of a leaf 0
    value: Vector  # (m,) of a leaf; elsewhere 0
    cover: Vector  # (m,) weight of the fitted events in the node, above 0
    bias: Vector  # (1,)


def empty(dim: int) -> Trees:
    """Return an ensemble without trees, which scores every event 0."""
    none, numbers = np.zeros(0, dtype=np.int64), np.zeros(0)
    nodes, flags = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int8)
    return Trees(np.zeros(dim), none, none, nodes, nodes, flags, numbers, numbers, numbers, np.zeros(1))


def grow_columns(trees: Trees, dim: int) -> Trees:
    """Return the ensemble for `dim` columns instead of fewer; the trees do not read the new ones."""
    return trees._replace(gain=grown(trees.gain, dim))


# Rows


class WeightedRows(NamedTuple):
    """The n events with a positive weight."""

    rows: Rows
    positive: NDArray[np.bool_]  # (n,)
    weight: Vector  # (n,) above 0, at most 1


def examples(rows: Rows, y: Vector, weight: Vector) -> WeightedRows:
    """Select the events with a positive weight, and divide the weights by the largest. O(numbers).

    Raises ValueError if a class has no such event.
    """
    selection = weight > 0.0
    positive = y[selection] > 0.0
    if not positive.any() or positive.all():
        raise ValueError(f"no {'negative' if positive.any() else 'positive'} event has a positive weight")
    shares = weight[selection] / weight.max()
    return WeightedRows(_selected(rows, selection), positive, np.maximum(shares, np.finfo(np.float32).tiny))


def _selected(rows: Rows, selection: NDArray[np.bool_]) -> Rows:
    if not isinstance(rows, Sparse):
        return rows[selection]
    sizes = np.diff(rows.indptr)
    entries = np.repeat(selection, sizes)
    indptr = np.concatenate([[0], np.cumsum(sizes[selection])])
    return Sparse(rows.data[entries], rows.indices[entries], indptr)


def chosen_columns(rows: Rows, dim: int, most: int) -> Counts:
    """Choose the columns that trees read, ascending: all of dense rows, else the `most` that most rows have.

    Ties go to the smaller column. There are fewer if the rows would have more than 2^23 numbers. O(non-zeros + dim).
    Raises ValueError if there is none.
    """
    if not isinstance(rows, Sparse):
        return np.arange(dim)
    counts = np.bincount(rows.indices[(rows.indices >= 0) & (rows.data != 0.0)], minlength=dim)
    most = min(most, _MAX_NUMBERS // max(1, len(rows.indptr) - 1))
    ranked = np.argsort(-counts, kind="stable")[:most]
    columns = np.sort(ranked[counts[ranked] > 0])
    if not len(columns):
        raise ValueError("no event has a feature that is not 0")
    return columns


def columns_of_rows(rows: Rows, columns: Counts) -> Matrix:
    """Return these columns of n rows, (n, c). O(n c)."""
    if not isinstance(rows, Sparse):
        return rows if len(columns) == rows.shape[1] else rows.take(columns, axis=1)
    out = np.zeros((len(rows.indptr) - 1, len(columns)))
    gather(rows.data, rows.indices, rows.indptr, columns, out)
    return out


@kernel
def _place(columns, column):  # type: ignore[no-untyped-def]
    """Return the place of a column in the ascending `columns`, -1 if it is not there."""
    low, high = 0, columns.shape[0]
    while low < high:
        middle = (low + high) // 2
        if columns[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low if low < columns.shape[0] and columns[low] == column else -1


@bare_kernel
def gather(data, indices, indptr, columns, out):  # type: ignore[no-untyped-def]
    """Copy the numbers of these columns, ascending, of n sparse rows to `out` (n, c)."""
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            place = _place(columns, indices[k])
            if place >= 0:
                out[i, place] = data[k]


# Scores


@kernel
def _leaf(x, i, right, slot, missing, threshold):  # type: ignore[no-untyped-def]
    """Return the leaf below node i that an event falls into; `x` has its numbers by slot."""
    while right[i] > 0:
        number = x[slot[i]]
        left = number <= threshold[i] or (np.isnan(number) and missing[i] == 1)
        i = i + 1 if left else right[i]
    return i


@bare_kernel
def score_leaves(X, starts, right, slot, missing, threshold, value, bias, scores):  # type: ignore[no-untyped-def]
    """Score rows (n, c) of the trees' columns: fill `scores` (n,)."""
    for i in range(X.shape[0]):
        total = bias
        for t in range(starts.shape[0]):
            total += value[_leaf(X[i], starts[t], right, slot, missing, threshold)]
        scores[i] = total


def tree_scores(trees: Trees, rows: Rows) -> Vector:
    """Score n rows, (n,): the same bits on every machine. O(trees * depth) per row."""
    X = columns_of_rows(rows, trees.columns)
    scores = np.empty(len(X))
    score_leaves(
        X,
        trees.starts,
        trees.right,
        trees.slot,
        trees.missing,
        trees.threshold,
        trees.value,
        trees.bias[0],
        scores,
    )
    return scores


@bare_kernel
def _covers(X, weight, starts, right, slot, missing, threshold, cover):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        for t in range(starts.shape[0]):
            node = starts[t]
            cover[node] += weight[i]
            while right[node] > 0:
                number = X[i, slot[node]]
                left = number <= threshold[node] or (np.isnan(number) and missing[node] == 1)
                node = node + 1 if left else right[node]
                cover[node] += weight[i]


class TreeNodes(NamedTuple):
    """The m nodes of one tree, as in `Trees`, but in any order."""

    left: NDArray[np.generic]
    right: NDArray[np.generic]
    slot: NDArray[np.generic]
    missing: NDArray[np.generic]
    threshold: NDArray[np.generic]
    value: NDArray[np.generic]
    gain: NDArray[np.generic]  # of the splits; of a leaf 0


def _in_pre_order(nodes: TreeNodes) -> TreeNodes:
    order = np.empty(len(nodes.right), dtype=np.int64)
    _pre_order(nodes.left.astype(np.int64), nodes.right.astype(np.int64), order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ordered = TreeNodes._make(array[order] for array in nodes)
    return ordered._replace(right=place[ordered.right])


@kernel
def _pre_order(left, right, order):  # type: ignore[no-untyped-def]
    """Fill `order` with the nodes of a tree in pre-order; node 0 is the root, and a right child 0 marks a leaf."""
    waiting = np.empty(right.shape[0], np.int64)
    waiting[0], count = 0, 1
    for i in range(right.shape[0]):
        count -= 1
        node = waiting[count]
        order[i] = node
        if right[node] > 0:
            waiting[count], waiting[count + 1] = right[node], left[node]
            count += 2


def joined(parts: Sequence[TreeNodes], bias: float, columns: Counts, dim: int, X: Matrix, weight: Vector) -> Trees:
    """Join fitted trees that read `columns`, with covers by n rows (n, c) and weights (n,). O(n * trees * depth)."""
    parts = [_in_pre_order(part) for part in parts]
    sizes = np.array([len(part.right) for part in parts], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    right, slot, missing, threshold, value, gains = (
        np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[1:]
    )
    right = np.where(right > 0, right + np.repeat(starts, sizes), 0).astype(np.int32)
    slot, missing, cover = slot.astype(np.int32), missing.astype(np.int8), np.zeros(len(right))
    _covers(X, weight, starts, right, slot, missing, threshold, cover)
    gain = np.zeros(dim)
    np.add.at(gain, columns[slot], np.maximum(gains, 0.0))
    return Trees(gain, columns, starts, right, slot, missing, threshold, value, cover, np.array([bias]))


# Attributions


@kernel
def _attribute(x, players, starts, right, slot, missing, threshold, value, cover, parts):  # type: ignore[no-untyped-def]
    """Add the Shapley values of one event's columns to `parts`; return the expected score without the bias.

    A leaf counts for a set of known players with its value, times the product over its path of: 1 or 0 by where the
    event goes, if the split's player is known; the child's share of the cover, if not. For each leaf, the splits of one
    player become one factor each. `ways[l]` is the weighted sum over all sets of l players (Lundberg et al.).
    """
    most = MAX_DEPTH + 2
    player, share, follows = np.empty(most, np.int64), np.empty(most), np.empty(most)
    ways = np.empty(most)
    path = np.empty(most, np.int64)  # nodes from the root to the present one
    expected = 0.0
    for t in range(starts.shape[0]):
        depth = 0
        path[0] = starts[t]
        while True:
            node = path[depth]
            if right[node] > 0:
                depth += 1
                path[depth] = node + 1
                continue
            # a leaf: the factors of its players
            count, reach = 0, 1.0
            for level in range(depth):
                parent, child = path[level], path[level + 1]
                number = x[slot[parent]]
                left = number <= threshold[parent] or (np.isnan(number) and missing[parent] == 1)
                indicator = 1.0 if left == (child == parent + 1) else 0.0
                part = cover[child] / cover[parent]
                reach *= part
                player_index = players[slot[parent]]
                place = 0
                while place < count and player[place] != player_index:
                    place += 1
                if place == count:
                    player[place], share[place], follows[place] = player_index, 1.0, 1.0
                    count += 1
                share[place] *= part
                follows[place] *= indicator
            expected += value[node] * reach
            ways[0] = 1.0
            for k in range(1, count + 1):
                zero, follow = share[k - 1], follows[k - 1]
                ways[k] = 0.0
                for i in range(k - 1, -1, -1):
                    ways[i + 1] += follow * ways[i] * (i + 1) / (k + 1)
                    ways[i] = zero * ways[i] * (k - i) / (k + 1)
            for k in range(count):
                zero, follow = share[k], follows[k]
                total = 0.0
                following = ways[count]
                for i in range(count - 1, -1, -1):
                    if follow > 0.0:
                        term = following * (count + 1) / (i + 1)
                        total += term
                        following = ways[i] - term * zero * (count - i) / (count + 1)
                    else:
                        total += ways[i] / zero * (count + 1) / (count - i)
                parts[player[k]] += total * (follow - zero) * value[node]
            # the next leaf: up to the last left turn, then right
            while depth > 0 and path[depth] != path[depth - 1] + 1:
                depth -= 1
            if depth == 0:
                break
            path[depth] = right[path[depth - 1]]
    return expected


def attributions(trees: Trees, rows: Rows, players: Counts, count: int) -> tuple[float, Matrix]:
    """Compute the exact Shapley values of the players for the score of each of n rows: (n, count).

    `players` (c,) has the player, 0 to count - 1, of each of `trees.columns`. The value of a set of players is the
    expected score if only their columns are known: at a split on any other column, both sides count by their cover.
    Returns the expected score without any, and the values. The score is their sum. O(leaves * depth^2) per row.
    """
    X = columns_of_rows(rows, trees.columns)
    parts = np.zeros((len(X), count))
    expected = 0.0
    for x, row in zip(X, parts, strict=True):
        expected = _attribute(
            x,
            players,
            trees.starts,
            trees.right,
            trees.slot,
            trees.missing,
            trees.threshold,
            trees.value,
            trees.cover,
            row,
        )
    return float(trees.bias[0]) + expected, parts


# Checks


def tree_problems(trees: Trees) -> Issues:
    """Find what no fit makes: nodes that are not trees, columns that do not exist. O(nodes + columns).

    The caller has checked dtypes, numbers of axes, that floats are finite, and that integers are at least 0.
    """
    m, dim = len(trees.right), len(trees.gain)
    for name in ("slot", "missing", "threshold", "value", "cover"):
        if len(getattr(trees, name)) != m:
            yield name, f"has {len(getattr(trees, name))} entries; expected {m}, one for each node"
            return
    if len(trees.bias) != 1:
        yield "bias", f"has {len(trees.bias)} entries; expected 1"
    if (trees.gain < 0.0).any():
        yield "gain", "has negative numbers"
    columns = trees.columns
    if (np.diff(columns) <= 0).any() or (len(columns) and columns[-1] >= dim):
        yield "columns", f"are not ascending columns below {dim}"
    inner = trees.right > 0
    if (trees.slot[inner] >= len(columns)).any():
        yield "slot", f"has places that are not below {len(columns)}"
    if (trees.missing > 1).any():
        yield "missing", "has numbers that are not 0 or 1"
    if not (trees.cover > 0.0).all():
        yield "cover", "has numbers that are not above 0"
    starts = trees.starts
    if (m > 0) != (len(starts) > 0) or (len(starts) and (starts[0] != 0 or starts[-1] >= m)):
        yield "starts", "are not the first nodes of trees"
    elif (np.diff(starts) <= 0).any():
        yield "starts", "are not ascending"
    elif m:
        yield from _shape_problems(starts, trees.right)


def _shape_problems(starts: Counts, right: NDArray[np.int32]) -> Issues:
    """Find nodes that do not form trees in pre-order of at most `MAX_DEPTH` splits."""
    m = len(right)
    nodes = np.arange(m)
    ends = np.append(starts[1:], m)
    end = np.repeat(ends, ends - starts)  # of each node's tree
    inner = right > 0
    if (inner & ((right <= nodes + 1) | (right >= end))).any():
        yield "right", "has children that are not later nodes of the same tree"
        return
    parents = np.bincount(np.concatenate([nodes[inner] + 1, right[inner]]), minlength=m)
    parents[starts] += 1
    if (parents != 1).any():
        yield "right", "does not give each node one parent"
        return
    if _depth(right) > MAX_DEPTH:
        yield "right", f"has more than {MAX_DEPTH} splits above a leaf"


@kernel
def _depth(right):  # type: ignore[no-untyped-def]
    """Return the most splits above a leaf, of nodes whose children come later."""
    depth = np.zeros(right.shape[0], np.int64)
    most = 0
    for i in range(right.shape[0]):
        if right[i] > 0:
            depth[i + 1] = depth[right[i]] = depth[i] + 1
            most = max(most, depth[i] + 1)
    return most
