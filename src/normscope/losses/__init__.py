"""Losses on raw embeddings: each normalises by itself, and none hides an intervention."""

from normscope.losses.cosine import negative_cosine
from normscope.losses.cross import cross_info_nce
from normscope.losses.dino import dino, updated_center
from normscope.losses.info_nce import info_nce
from normscope.losses.supervised import supervised_info_nce
from normscope.losses.triplet import triplet

__all__ = [
    "cross_info_nce",
    "dino",
    "info_nce",
    "negative_cosine",
    "supervised_info_nce",
    "triplet",
    "updated_center",
]
