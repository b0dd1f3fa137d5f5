"""Decimal text to the nearest float64, to the bit what `float` makes of it, as compiled code.

A decimal is w 10^q, with w the digits read as a whole number.

    w <= 2^53 and |q| <= 22    w and 10^|q| are exact, so one multiplication or division rounds once (Clinger)
    w < 2^64 otherwise         the upper bits of w 5^q by one product of 64-bit numbers (Eisel and Lemire)
    the rest                   HARD: more than 19 digits, a tie, no normal number, or a product that does not decide

With T the first 64 bits of 5^q, cut off, and w shifted up to 64 bits, the true product lies less than 2^64 above w T.
So it differs from the upper word of w T by a carry of 1 at most, which reaches the bits that are kept only where all
bits below them are ones. One number of 512 is left to the caller for that, who has `float`. A tie can only be where all
bits below the last one are zeros.

Some 20 ns for a number of 17 digits, half of which are branches that no processor foresees.

References
----------
Clinger. How to Read Floating Point Numbers Accurately. PLDI 1990.
Lemire. Number Parsing at a Gigabyte per Second. Software: Practice and Experience 51 (8), 2021, section 5.
"""

from __future__ import annotations

import math

import numpy as np

from learners.numerics import bare_kernel, inlined

__all__ = ["blank", "decimals"]

_DIGITS = 19  # any so many fit 64 bits
_LEAST, _MOST = -342, 308  # of q: below it is 0, above it is infinite, whatever the digits
_LEAST_BINARY, _MOST_BINARY = -1074, 970  # of the power of two behind 53 bits of a normal number


def _top(q: int) -> int:
    """Return the first 64 bits of 5^q."""
    if q >= 0:
        power = int(5**q)
        excess = power.bit_length() - 64
        return power >> excess if excess > 0 else power << -excess
    power = int(5**-q)
    return (1 << (63 + power.bit_length())) // power


_TOPS = np.array([_top(q) for q in range(_LEAST, _MOST + 1)], dtype=np.uint64)
_TWOS = np.array([math.ldexp(1.0, e) for e in range(_LEAST_BINARY, _MOST_BINARY + 1)])
_TENS = np.array([float(10**q) for q in range(23)])  # exact
_LOW = np.uint64(2**32 - 1)
_32 = np.uint64(32)
_0, _1, _9, _10 = np.uint64(0), np.uint64(1), np.uint64(9), np.uint64(10)
_NINE_BITS = np.uint64(2**9 - 1)
_EXACT = np.uint64(2**53)
_EIGHT = np.uint64(10**8)
_COMMA = 44
_POINT, _E, _PLUS, _BELOW = 46 ^ 48, (101 ^ 48) | 32, 43 ^ 48, 45 ^ 48  # as `_digit` gives them
_FAR = 10**8  # an exponent beyond what the digits of any body make up for


@inlined
def _product(a, b):  # type: ignore[no-untyped-def]
    """Return the upper and the lower 64 bits of a product of 64-bit numbers."""
    a0, a1 = a & _LOW, a >> _32
    b0, b1 = b & _LOW, b >> _32
    p00, p01, p10, p11 = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    middle = (p00 >> _32) + (p01 & _LOW) + (p10 & _LOW)
    return p11 + (p01 >> _32) + (p10 >> _32) + (middle >> _32), (middle << _32) | (p00 & _LOW)


@inlined
def _shifted(w):  # type: ignore[no-untyped-def]
    """Shift w > 0 up until it has 64 bits; return it and the shift. Has no branches, which could not be predicted."""
    shift = np.uint64((w >> _32) == _0) << np.uint64(5)
    w = w << shift
    more = np.uint64((w >> np.uint64(48)) == _0) << np.uint64(4)
    w, shift = w << more, shift + more
    more = np.uint64((w >> np.uint64(56)) == _0) << np.uint64(3)
    w, shift = w << more, shift + more
    more = np.uint64((w >> np.uint64(60)) == _0) << np.uint64(2)
    w, shift = w << more, shift + more
    more = np.uint64((w >> np.uint64(62)) == _0) << np.uint64(1)
    w, shift = w << more, shift + more
    more = np.uint64((w >> np.uint64(63)) == _0)
    return w << more, np.int64(shift + more)


@inlined
def _nearest(w, q):  # type: ignore[no-untyped-def]
    """Return the float64 nearest to w 10^q, w > 0, and whether it certainly is; else the number is a hard one."""
    if w <= _EXACT:
        if 0 <= q <= 22:
            return float(w) * _TENS[q], True
        if -22 <= q < 0:
            return float(w) / _TENS[-q], True
    if q < _LEAST or q > _MOST:
        return 0.0, False
    w, shift = _shifted(w)
    high, low = _product(w, _TOPS[q - _LEAST])
    if high & _NINE_BITS == _NINE_BITS:
        return 0.0, False
    upper = high >> np.uint64(63)
    drop = _9 + upper  # 54 bits are left, the last of which says whether to round up
    bits = high >> drop
    if low == _0 and bits & _1 == _1 and bits << drop == high:
        return 0.0, False
    binary = 11 + np.int64(upper) - shift + ((217706 * q) >> 16)  # 217706 / 2^16: log2 10, exact enough for every q
    if binary < _LEAST_BINARY or binary > _MOST_BINARY:
        return 0.0, False
    return float((bits + (bits & _1)) >> _1) * _TWOS[binary - _LEAST_BINARY], True


@inlined
def blank(byte):  # type: ignore[no-untyped-def]
    """Tell whether a byte is white space in JSON."""
    return byte == 32 or byte == 10 or byte == 13 or byte == 9


@inlined
def _digit(body, at, stop):  # type: ignore[no-untyped-def]
    """Return the digit at a place, or a number above 9."""
    return np.int64(body[at]) ^ 48 if at < stop else np.int64(10)


@inlined
def _eight(body, at):  # type: ignore[no-untyped-def]
    """Return whether eight digits follow, and their number."""
    a, b, c, d = body[at] ^ 48, body[at + 1] ^ 48, body[at + 2] ^ 48, body[at + 3] ^ 48
    e, f, g, h = body[at + 4] ^ 48, body[at + 5] ^ 48, body[at + 6] ^ 48, body[at + 7] ^ 48
    good = a <= 9 and b <= 9 and c <= 9 and d <= 9 and e <= 9 and f <= 9 and g <= 9 and h <= 9
    number = (((a * 10 + b) * 100 + (c * 10 + d)) * 10000) + ((e * 10 + f) * 100 + (g * 10 + h))
    return good, np.uint64(number)


@bare_kernel
def decimals(body, at, stop, out, row, first, last, hard, hard_count, table):  # type: ignore[no-untyped-def]
    """Read JSON numbers with commas between them, from `at` < `stop` on, into `out[row, first]` to `out[row, last]`.

    Returns the place behind them and any blanks (-1 if the bytes are something else), and the count of hard numbers so
    far. A hard number is noted in `hard`, which must have room for it, as (`table`, row, column, its first byte, the
    end).
    """
    k = first
    while k <= last and at >= 0:
        while at < stop and blank(body[at]):
            at += 1
        start = at
        negative = _digit(body, at, stop) == _BELOW
        at += np.int64(negative)
        begin, w, count, q = at, _0, np.int64(0), 0
        digit = _digit(body, at, stop)
        while digit <= 9:
            if count < _DIGITS:
                w = w * _10 + np.uint64(digit)
            count += 1
            at += 1
            digit = _digit(body, at, stop)
        good = count == 1 or (count > 1 and body[begin] != 48)
        whole = digit != _POINT
        if not whole:
            at += 1
            point = at
            if w == _0:
                count = np.int64(0)
                while at < stop and body[at] == 48:
                    at += 1
            eight = True
            while eight and count <= _DIGITS - 8 and at + 8 <= stop:
                eight, number = _eight(body, at)
                if eight:
                    w = w * _EIGHT + number
                    count += 8
                    at += 8
            if count <= _DIGITS - 2:  # most numbers end after 0 to 2 more: without branches, which cannot be foreseen
                item, two = _digit(body, at, stop), _digit(body, at + 1, stop)
                ones = np.int64(item <= 9)
                twos = ones & np.int64(two <= 9)
                w = (w * np.uint64(1 + 9 * ones)) + np.uint64(item * ones)
                w = (w * np.uint64(1 + 9 * twos)) + np.uint64(two * twos)
                count += ones + twos
                at += ones + twos
            digit = _digit(body, at, stop)
            while digit <= 9:
                if count < _DIGITS:
                    w = w * _10 + np.uint64(digit)
                count += 1
                at += 1
                digit = _digit(body, at, stop)
            q = point - at
            good = good and q < 0
        if digit | 32 == _E:
            whole = False
            at += 1
            sign = _digit(body, at, stop)
            if sign in (_PLUS, _BELOW):
                at += 1
            begin, power = at, 0
            digit = _digit(body, at, stop)
            while digit <= 9:
                if power < _FAR:
                    power = 10 * power + digit
                at += 1
                digit = _digit(body, at, stop)
            q += -power if sign == _BELOW else power
            good = good and at > begin
        if w == _0:
            value, sure = 0.0, True
            negative = negative and not whole  # a whole -0 is 0
        elif count > _DIGITS:
            value, sure = 0.0, False
        else:
            value, sure = _nearest(w, q)
        out[row, k] = value * (1.0 - 2.0 * np.float64(negative))
        if not sure:
            if hard_count < hard.shape[0]:
                hard[hard_count, 0], hard[hard_count, 1], hard[hard_count, 2] = table, row, k
                hard[hard_count, 3], hard[hard_count, 4] = start, at
                hard_count += 1
            else:
                good = False
        while at < stop and blank(body[at]):
            at += 1
        if k < last:
            good = good and at < stop and body[at] == _COMMA
            at += 1
        k += 1
        if not good:
            at = -1
    return at, hard_count
