"""How many multiples of a sampled envelope an honest error may reach.

The envelope of an element, s, is the root of the mean of m squared deviations about a known centre
(the float64 answer). If an honest error has the same variance as the deviations and both are close
to normal, error / s follows Student's t with m degrees of freedom, exactly: the centre is known, so
none is lost. The multiple for N elements is therefore the two-sided quantile of t at
FAMILY_WISE / N (the union bound needs no independence between elements).

For the mean square of a whole output the ratio of mean squares follows F(v, m v), v being the
effective number of independent components. v is estimated from the samples: a mean square of v
independent normal components has a relative variance of 2 / v (Satterthwaite's matching of moments).

Both are multiplied by HONEST, because an honest kernel may do its arithmetic in an order that is
worse than the one modelled.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, sqrt

#: False convictions per verdict, all elements together.
FAMILY_WISE = 1e-9
#: Largest ratio of RMS error to RMS envelope measured on eager float32 over 45 KernelBench programs.
HONEST = 1.8
#: Smallest ratio measured on a precision fault: float16 accumulation passed off as float32.
DISHONEST = 4.3
#: Multiple on the whole output where it has very many independent components: midway, on a
#: logarithmic scale, between the worst honest and the best dishonest ratio.
RMS_MULTIPLE = sqrt(HONEST * DISHONEST)


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function
    (Abramowitz and Stegun, 26.5.8)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    h = d
    for k in range(1, 20_000):
        even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + term / c
            c = c if abs(c) > tiny else tiny
            h *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return h


def log_beta_tail(a: float, b: float, x: float) -> float:
    """Logarithm of the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return -inf
    if x >= 1.0:
        return 0.0
    front = lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return front + log(_continued_fraction(a, b, x)) - log(a)
    other = exp(front) * _continued_fraction(b, a, 1.0 - x) / b
    return log1p(-other) if other < 1.0 else -inf


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: int) -> float:
    """The t with P(|T| > t) = `probability`, T being Student's with `degrees` degrees of freedom.

    P(|T| > t) = I_x(degrees / 2, 1 / 2) at x = degrees / (degrees + t²).
    """
    target = log(probability)
    low, high = 1e-6, 1e12
    for _ in range(200):
        middle = sqrt(low * high)
        if log_beta_tail(degrees / 2, 0.5, degrees / (degrees + middle * middle)) > target:
            low = middle
        else:
            high = middle
        if high - low < 1e-6 * high:
            break
    return high


@lru_cache(maxsize=4096)
def f_quantile(probability: float, one: float, two: float) -> float:
    """The f with P(F > f) = `probability`, F having `one` and `two` degrees of freedom.

    P(F > f) = I_x(two / 2, one / 2) at x = two / (two + one f).
    """
    target = log(probability)
    low, high = 1.0, 1e24
    for _ in range(200):
        middle = sqrt(low * high)
        if log_beta_tail(two / 2, one / 2, two / (two + one * middle)) > target:
            low = middle
        else:
            high = middle
        if high - low < 1e-6 * high:
            break
    return high


def element_multiple(samples: int, elements: int) -> float:
    """Multiple of s that no honest element of `elements` exceeds, but for one verdict in 1e9."""
    # A quantile needs no more than a few digits; rounding the count up shares the cache.
    count = 1 << max(0, elements - 1).bit_length()
    return HONEST * t_quantile(FAMILY_WISE / count, samples)


def effective_components(mean_squares: list[float]) -> float:
    """v of the module's text, from the mean square of each sample over the whole output."""
    m = len(mean_squares)
    mean = sum(mean_squares) / m if m else 0.0
    if m < 2 or mean <= 0.0:
        return 1.0
    variance = sum((x - mean) ** 2 for x in mean_squares) / (m - 1)
    if variance <= 0.0:
        return 1e6
    return min(1e6, max(1.0, 2.0 * mean * mean / variance))


def rms_multiple(samples: int, components: float) -> float:
    """Multiple of the RMS envelope that the RMS error of a whole output may reach."""
    # Rounded down to a power of two: fewer components widen the multiple.
    v = float(1 << (int(components).bit_length() - 1))
    ratio = sqrt(f_quantile(FAMILY_WISE, v, samples * v))
    return max(RMS_MULTIPLE, HONEST * ratio)
