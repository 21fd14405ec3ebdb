"""exp and log without branches or tables, so that loops over them vectorise. Accurate to about one unit in the last place.

NumPy's and LLVM's own versions are calls that keep a loop scalar; on two cores that would be most of an iteration.
These two are compiled without re-association: the rounding trick below relies on the order of its operations.
"""

# pyright: reportCallIssue=false
# An intrinsic is called without the typing context that its definition takes.

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from consilience.kernels.options import LOOP

EXACT: dict[str, Any] = LOOP | {"fastmath": {"contract"}}
"""As every loop, but sums keep their order."""
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer that sits in the low mantissa bits
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_TWO52 = 4503599627370496.0


@intrinsic
def bits_of(typingctx: Any, x: Any) -> Any:
    """The 64 bits of a double as an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def double_of(typingctx: Any, x: Any) -> Any:
    """The double that has these 64 bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit(**EXACT)
def exp(x: float) -> float:
    """e^x for |x| <= 700; outside, the value at the nearer end."""
    x = min(max(x, -700.0), 700.0)
    shifted = x * _LOG2E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    # Taylor series of e^r on |r| <= ln(2)/2 to the 12th power (the rest is below 2e-16), in pairs: shorter chains of operations.
    s = r * r
    q = s * s
    low = (1.0 + r) + s * (0.5 + r * (1.0 / 6.0))
    middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + s * (1.0 / 720.0 + r * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + s * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    p = (low + q * middle) + (q * q) * (high + q * (1.0 / 479001600.0))
    return p * double_of((bits_of(shifted) + 1023) << 52)


SHORT = 1.0 / 8.0
NEAR = 1.0 / 25.0
"""Up to here the short series of exp and log1p are as accurate as the long ones, for less than half of the work."""


@njit(**EXACT)
def short_exp(x: float) -> float:
    """e^x for |x| <= SHORT: the rest of the series is below 3e-16."""
    s = x * x
    high = (1.0 / 40320.0 + x * (1.0 / 362880.0)) * s + (1.0 / 720.0 + x * (1.0 / 5040.0))
    low = (1.0 / 24.0 + x * (1.0 / 120.0)) * s + (0.5 + x * (1.0 / 6.0))
    return (high * (s * s) + low) * s + (1.0 + x)


TINY = 1.0 / 50.0


@njit(**EXACT)
def tiny_exp(x: float) -> float:
    """e^x for |x| <= TINY: the rest of the series is below 3e-16."""
    s = x * x
    high = (1.0 / 720.0) * s + (1.0 / 24.0 + x * (1.0 / 120.0))
    return (high * s + (0.5 + x * (1.0 / 6.0))) * s + (1.0 + x)


@njit(**EXACT)
def short_log1p(x: float) -> float:
    """ln(1 + x) for |x| <= NEAR: the rest of the series is below 4e-17."""
    s = x * x
    high = (1.0 / 9.0 - x * (1.0 / 10.0)) * s + (1.0 / 7.0 - x * (1.0 / 8.0))
    low = (1.0 / 5.0 - x * (1.0 / 6.0)) * s + (1.0 / 3.0 - x * (1.0 / 4.0))
    return ((high * (s * s) + low) * x - 0.5) * s + x


@njit(**EXACT)
def log(x: float) -> float:
    """ln x for normal x > 0. Zero gives about -709, which is what a floor of the smallest double would."""
    bits = bits_of(max(x, 2.2250738585072014e-308))
    exponent = double_of((bits >> 52) | 0x4330000000000000) - _TWO52 - 1023.0
    m = double_of((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000)
    high = m > 1.4142135623730951
    m = m * 0.5 if high else m
    exponent = exponent + 1.0 if high else exponent
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    # ln(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), the usual series in s = f / (2 + f).
    r = z * (
        6.666666666666735130e-01
        + z
        * (
            3.999999999940941908e-01
            + z
            * (
                2.857142874366239149e-01
                + z
                * (
                    2.222219843214978396e-01
                    + z
                    * (
                        1.818357216161805012e-01
                        + z * (1.531383769920937332e-01 + z * 1.479819860511658591e-01)
                    )
                )
            )
        )
    )
    half = 0.5 * f * f
    return exponent * _LN2_HIGH - ((half - (s * (half + r) + exponent * _LN2_LOW)) - f)
