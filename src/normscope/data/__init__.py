"""Datasets, read from their published files, and the batches that training takes from them."""

from normscope.data.archives import fetch
from normscope.data.catalog import DATASETS, HUMAN_LABELS, Dataset, check, default_root, load
from normscope.data.human_labels import cifar10h, cifar10n, cifar100n, vote_entropy
from normscope.data.images import ImageArrays, LazyImages, Split
from normscope.data.listed import Listed, listed
from normscope.data.novel import datasets_new_to, novel_to
from normscope.data.publishers import Archive
from normscope.data.resident import Batch, Resident
from normscope.data.streamed import Streamed, source

__all__ = [
    "DATASETS",
    "HUMAN_LABELS",
    "Archive",
    "Batch",
    "Dataset",
    "ImageArrays",
    "LazyImages",
    "Listed",
    "Resident",
    "Split",
    "Streamed",
    "check",
    "cifar10h",
    "cifar10n",
    "cifar100n",
    "datasets_new_to",
    "default_root",
    "fetch",
    "listed",
    "load",
    "novel_to",
    "source",
    "vote_entropy",
]
