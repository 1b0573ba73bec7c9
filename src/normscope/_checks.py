"""Validation shared by every folder: one error form, raised before any work is done."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal, get_args

import torch
from torch import Tensor

NormOf = Literal["each", "mean", "share"]  # whose norm GradScale takes


def describe(value: object) -> str:
    """A value as an error message shows it: short for any value.

    >>> describe(torch.zeros(2, 3)), describe("al"), describe([1] * 1000)
    ('a float32 tensor of shape (2, 3) on cpu', "'al'", 'a list')
    """
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype} tensor of shape {tuple(value.shape)} on {value.device}"
    if value is None or isinstance(value, (str, Real)):
        return repr(value)
    return f"a {type(value).__name__}"


def invalid(name: str, constraint: str, got: object, advice: str) -> ValueError:
    """The library's one error form: what must hold, what came, what to do.

    >>> invalid("temperature", "positive", -1, "SimCLR uses 0.5.")
    ValueError('temperature must be positive, got -1. SimCLR uses 0.5.')
    """
    return ValueError(f"{name} must be {constraint}, got {describe(got)}. {advice}")


def check_number(name: str, value: object, advice: str, *, positive: bool = True) -> float:
    """`value` as a float, if it is a finite real number (and positive, by default)."""
    constraint = "a positive finite number" if positive else "a finite number"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise invalid(name, constraint, value, advice)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (positive and number <= 0):
        raise invalid(name, constraint, value, advice)
    return number


def check_norm_of(name: str, value: object) -> None:
    """Refuse a value that names none of GradScale's norms."""
    if value not in get_args(NormOf):
        raise invalid(name, "'each', 'mean' or 'share'", value, "The paper's is 'each'.")


def check_floating(
    name: str,
    value: object,
    shape: str,
    *,
    ndim: int | None = None,
    advice: str = "Pass raw embeddings.",
) -> None:
    """Refuse what is not a floating-point tensor of `ndim` dimensions (or at least one)."""
    fits = (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and (value.ndim >= 1 if ndim is None else value.ndim == ndim)
    )
    if not fits:
        raise invalid(name, f"a floating-point tensor {shape}", value, advice)


def check_embeddings(**embeddings: Tensor) -> None:
    """Refuse embeddings that are not (n, d), not empty, and alike in shape, dtype and device."""
    (first_name, first), *rest = embeddings.items()
    check_floating(first_name, first, "(n, d)", ndim=2)
    if first.numel() == 0:
        raise invalid(first_name, "at least one row and one column", first, "Skip empty batches.")
    for name, value in rest:
        check_floating(name, value, "(n, d)", ndim=2)
        if (value.shape, value.dtype, value.device) != (first.shape, first.dtype, first.device):
            constraint = f"like {first_name}, {describe(first)}"
            raise invalid(name, constraint, value, "Row i of each must be one example.")


def check_labels(labels: Tensor, embeddings: Tensor) -> None:
    """Refuse labels that are not one integer per row, on the embeddings' device."""
    fits = (
        isinstance(labels, Tensor)
        and labels.shape == embeddings.shape[:1]
        and labels.device == embeddings.device
        and labels.dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
    )
    if not fits:
        constraint = f"an integer tensor of shape ({len(embeddings)},) on {embeddings.device}"
        raise invalid("labels", constraint, labels, "Give each row of z its class.")
