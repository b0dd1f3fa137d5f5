"""Compile every kernel with one decorator and one cache, and run it as plain Python until then if others compile.

`kernel_cache` keeps machine code on disk, in files that `kernel_reach` names. numba's dispatcher runs what it has
loaded, and asks here what serves another call: `background_compiler` says whether that is `plain_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock

from learners.numerics.background_compiler import needs_plain
from learners.numerics.kernel_cache import KernelCache, cache_directory
from learners.numerics.plain_kernels import plain

__all__ = ["bare_kernel", "cache_directory", "inlined", "kernel"]

_njit: Any = numba.njit  # numba's types leave out the option that switches its counting of references off


def _compiled(function: Callable[..., Any], **options: bool) -> Callable[..., Any]:
    compiled: Any = _dispatcher(function, **options)
    if compiled is function:  # NUMBA_DISABLE_JIT
        return plain(function)
    callee = _dispatcher(function, **options, no_cpython_wrapper=True)
    _run_meanwhile(compiled, _share(compiled))
    _share(callee)
    _serve_kernels(compiled, callee)
    kernel: Callable[..., Any] = compiled
    return kernel


def _dispatcher(function: Callable[..., Any], **options: bool) -> Any:
    return _njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)


def _share(dispatcher: Any) -> KernelCache:
    cache = dispatcher._cache = KernelCache(dispatcher)
    compile_for = dispatcher.compile

    def compile_and_release(sig: Any) -> Any:
        with global_compiler_lock:  # numba's own lock of compiling threads
            try:
                return compile_for(sig)
            finally:
                cache.release()

    dispatcher.compile = compile_and_release
    return cache


def _run_meanwhile(dispatcher: Any, cache: KernelCache) -> None:
    """Run calls as plain Python while another process compiles what they need."""
    function, compile_for_args, type_of = dispatcher.py_func, dispatcher._compile_for_args, dispatcher.typeof_pyval
    in_python = plain(function)

    def compile_or_run(*arguments: Any) -> Any:
        """Return what runs a call for which nothing is loaded."""
        kinds = tuple(map(type_of, arguments))
        dispatcher._types_active_call.clear()  # as numba does after its own look at the types
        return in_python if needs_plain(function, kinds, cache.path(kinds)) else compile_for_args(*arguments)

    dispatcher._compile_for_args = compile_or_run


def _serve_kernels(dispatcher: Any, callee: Any) -> None:
    """Let kernels that call this one use another dispatcher, whose machine code Python cannot call.

    What turns Python's arguments into those of machine code, for example each array of a state, is much of the
    compiler's work. Most kernels are called by other kernels only.

    A constant argument counts as int64. Otherwise numba would compile the function, and all that it calls, once more
    for each combination of constants. LLVM puts constants into the functions that it inlines anyway.
    """
    template_for = callee.get_call_template
    widen: Callable[[Any], Any] = types.unliteral

    def get_call_template(args: Any, kws: Any) -> Any:
        return template_for(tuple(map(widen, args)), {name: widen(kind) for name, kind in kws.items()})

    dispatcher.get_call_template, dispatcher.get_overload = get_call_template, callee.get_overload
    callee._compiling_counter = dispatcher._compiling_counter  # by which numba notices recursion


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` on first call: cached on disk, GIL released, strict IEEE arithmetic in program order.

    Kernels use neither `fastmath` nor `parallel`, because states must agree to the bit on every node and replay.
    """
    return _compiled(function)


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `kernel`, without counting references to arguments and their views.

    Use it for small, frequent functions that create no arrays and call none that do. Counting would cost about 50 ns
    for each array of each call. Callers in Python keep the arrays alive meanwhile.
    """
    return _compiled(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as `bare_kernel`, and inline the function into its callers: for small functions of hot loops.

    Cached functions are machine code, which cannot be inlined, so these are not cached themselves.
    """
    options = {"_nrt": False, "forceinline": True}
    compiled: Any = _dispatcher(function, **options)
    if compiled is function:
        return plain(function)
    _serve_kernels(compiled, _dispatcher(function, **options, no_cpython_wrapper=True))
    result: Callable[..., Any] = compiled
    return result
