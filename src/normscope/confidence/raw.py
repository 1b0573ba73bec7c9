"""Whether rows still have the norms that their network gave them."""

from __future__ import annotations

import numpy as np

from normscope._checks import invalid

RAW = 1e-3  # least std / mean of a raw reference's norms
_ROUNDED = 5e-4  # most of normalised rows: rounding gives 3e-4 in half precision
WAY_OUT = "Keep the model's raw output; in sentence-transformers, leave out its Normalize module."

_MANY = 20  # rows that differ, and share one norm to `_ROUNDED`
_SOME = 5  # rows whose norms are one to `_ROUNDED`
_ROUNDING = 5e-7  # how far from one a norm is that was set to one in single precision


def alike(norms: np.ndarray) -> bool:
    """Whether all norms of a reference, (n,), finite and above zero, are one number."""
    return _spread(norms) < RAW


def _spread(norms: np.ndarray) -> float:
    scaled = norms / norms.max()  # whose squares do not overflow
    return float(scaled.std() / scaled.mean())


def normalised(norms: np.ndarray) -> bool:
    """Whether norms, (n,), are of rows that were normalised; those not finite or zero don't count.

    One row is enough, if its norm is one to the last digit of single precision.

    >>> normalised(np.array([1.0000001])), normalised(np.array([1.01])), normalised(np.ones(9) * 3)
    (True, False, False)
    """
    known = norms[np.isfinite(norms) & (norms > 0)]
    off = np.abs(known - 1)
    if len(known) == 0:
        return False
    if (off < _ROUNDING).all() or (len(known) >= _SOME and (off < _ROUNDED).all()):
        return True
    # copies of one row share its norm exactly
    return len(known) >= _MANY and len(np.unique(known)) > 1 and _spread(known) < _ROUNDED


def check_not_normalised(name: str, norms: np.ndarray) -> None:
    """Refuse norms, (n,), of rows that were normalised, where the reference's are raw."""
    if normalised(norms):
        known = norms[np.isfinite(norms) & (norms > 0)]
        got = f"norms that are all {known[0]:.4g}: normalised rows"
        raise invalid(name, "raw, as the reference was", got, WAY_OUT)
