"""Arrays, kernels and the numbers below every algorithm.

Start with `jit`, which compiles kernels: `kernel_cache` and `kernel_reach` keep them, `plain_kernels` and
`background_compiler` serve calls until they are compiled, by `compiler_process`. Then `arrays`, the types of arrays and
the functions on them.
`simd` has vectors of eight numbers, `packed_symmetric` symmetric matrices, `order_statistics` sorted multisets,
`hash_table` ids beside a ring, `column_index` columns, `hashing` strings, `log_bins` bins by exponent,
`float32` storage in single precision, `array_checks` the checks of restored arrays.
"""

from learners.numerics import hash_table, log_bins, order_statistics, packed_symmetric, simd
from learners.numerics.array_checks import MAX_COUNT, Issues, counters, not_finite, outside
from learners.numerics.arrays import (
    Counts,
    Cube,
    Floats,
    Matrix,
    Rows,
    Sparse,
    Vector,
    Words,
    dot,
    exp,
    grown,
    length,
    log,
    next_random,
    normal_quantile,
    sigmoid,
)
from learners.numerics.background_compiler import (
    KernelCounts,
    compile_in_background,
    kernel_counts,
    kernel_trouble,
    rehearse_here,
    wait_for_kernels,
    waiting_kernels,
)
from learners.numerics.column_index import find_place, insert_all, sort_pairs, sum_pairs
from learners.numerics.compiler_process import Rehearsal
from learners.numerics.float32 import Precision, nearest, number, stored
from learners.numerics.hash_table import hashes_of
from learners.numerics.hashing import hash_bytes, hash_strings, mix
from learners.numerics.jit import bare_kernel, cache_directory, inlined, kernel
from learners.numerics.log_bins import BINS
from learners.numerics.order_statistics import WAITING, MultisetArrays

__all__ = [
    "BINS",
    "MAX_COUNT",
    "WAITING",
    "Counts",
    "Cube",
    "Floats",
    "Issues",
    "KernelCounts",
    "Matrix",
    "MultisetArrays",
    "Precision",
    "Rehearsal",
    "Rows",
    "Sparse",
    "Vector",
    "Words",
    "bare_kernel",
    "cache_directory",
    "compile_in_background",
    "counters",
    "dot",
    "exp",
    "find_place",
    "grown",
    "hash_bytes",
    "hash_strings",
    "hash_table",
    "hashes_of",
    "inlined",
    "insert_all",
    "kernel",
    "kernel_counts",
    "kernel_trouble",
    "length",
    "log",
    "log_bins",
    "mix",
    "nearest",
    "next_random",
    "normal_quantile",
    "not_finite",
    "number",
    "order_statistics",
    "outside",
    "packed_symmetric",
    "rehearse_here",
    "sigmoid",
    "simd",
    "sort_pairs",
    "stored",
    "sum_pairs",
    "wait_for_kernels",
    "waiting_kernels",
]
