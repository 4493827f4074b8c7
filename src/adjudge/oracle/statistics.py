"""How many envelopes an honest element may lie away.

The envelope of an element is the root mean square of n sampled errors. If the honest error is normal
with that standard deviation, error over envelope follows Student's t with n degrees of freedom, and
the multiple for a family of N elements at false-alarm rate p is its quantile at p / (2 N).
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, lgamma, log, sqrt

#: False alarms a verdict, all elements together.
FAMILY_RATE = 1e-9
#: The model counts one rounding an operation; honest kernels round intermediate values once or twice
#: more (a division by a reciprocal, an exponential by exp2). Honest eager programs reach 1.8 in the
#: mean square over 45 references; dishonest ones start at 4.3.
SLACK = 2.0
#: Root-mean-square error over root-mean-square envelope where many elements err independently:
#: between 1.8 and 4.3.
RMS_MULTIPLE = 3.5


def element_multiple(samples: int, elements: int) -> float:
    """Bound, in envelopes, on one of `elements` honest errors, the envelope from `samples` runs.

    The family is rounded up to a power of two, so that one quantile serves many shapes.
    """
    return _multiple(samples, max(elements - 1, 0).bit_length())


@lru_cache(maxsize=256)
def _multiple(samples: int, bits: int) -> float:
    return SLACK * student_quantile(FAMILY_RATE / (2 << bits), samples)


def mean_square_multiple(samples: int, effective: float) -> float:
    """Bound, in root-mean-square envelopes, on the root-mean-square error of one output.

    RMS_MULTIPLE is for many independent errors. Few that dominate, or one that all elements share
    (the sum that divides a whole tensor), are as likely to be large as a single normal error is. With
    n effective errors the mean square is a chi-square over n, its estimate from m runs one over n m,
    and Chernoff's bound on the ratio of the two exceeding t**2 is exp(-g(t)),
    g = n / 2 ((m + 1) ln((m + t**2) / (m + 1)) - ln t**2); t is where that is FAMILY_RATE.

    Args:
        samples: runs that the envelope is estimated from, m.
        effective: how many independent errors the mean square varies like, n.
    """
    return max(RMS_MULTIPLE, SLACK * _mean_square_quantile(samples, max(1, int(effective))))


@lru_cache(maxsize=1024)
def _mean_square_quantile(m: int, n: int) -> float:
    low, high = 0.0, 60.0  # ln t**2; the bound falls as t grows
    for _ in range(60):
        middle = (low + high) / 2
        exponent = n / 2 * ((m + 1) * log((m + exp(middle)) / (m + 1)) - middle)
        if exponent < -log(FAMILY_RATE):
            low = middle
        else:
            high = middle
    return exp(high / 2)


def student_quantile(tail: float, degrees: int) -> float:
    """t with P(T > t) = tail, by bisection on the logarithm of t."""
    low, high = 1e-3, 1e12
    for _ in range(60):
        middle = sqrt(low * high)
        if student_tail(middle, degrees) > tail:
            low = middle
        else:
            high = middle
    return high


def student_tail(t: float, degrees: int) -> float:
    """P(T > t) for t > 0: half the regularised incomplete beta function I_x(v/2, 1/2) at
    x = v / (v + t**2) (Abramowitz and Stegun 26.7.1)."""
    x = degrees / (degrees + t * t)
    return 0.5 * _incomplete_beta(degrees / 2, 0.5, x)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the fraction in Abramowitz and Stegun 26.5.8."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    total = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            total *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return total
