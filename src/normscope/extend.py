"""Helpers for code that extends normscope, beside its public names: checks, files, norms.

`normscope_paper` is built on these; your own methods, datasets and experiments can be too.
"""

from normscope._checks import check_embeddings, check_labels, check_number, describe, invalid
from normscope._environment import hardware, processor, versions
from normscope._files import whole_file, without_nan
from normscope._sphere import orthogonal_part, safe_norm, unit
from normscope._typed import typed

__all__ = [
    "check_embeddings",
    "check_labels",
    "check_number",
    "describe",
    "hardware",
    "invalid",
    "orthogonal_part",
    "processor",
    "safe_norm",
    "typed",
    "unit",
    "versions",
    "whole_file",
    "without_nan",
]
