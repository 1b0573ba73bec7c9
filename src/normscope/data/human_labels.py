"""Human labels of CIFAR's images.

CIFAR-10N and CIFAR-100N: Wei et al., "Learning with Noisy Labels Revisited", ICLR 2022.
CIFAR-10H: Peterson et al., "Human uncertainty makes classification more robust", ICCV 2019.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from normscope._checks import invalid
from normscope.data import pickles

_MOST_BYTES = 64 << 20  # the published pickles take 2.4 MB

# keys, and of how many classes
_CIFAR10N = {
    "clean_label": 10,
    "aggre_label": 10,
    "worse_label": 10,
    "random_label1": 10,
    "random_label2": 10,
    "random_label3": 10,
}
_CIFAR100N = {
    "clean_label": 100,
    "noisy_label": 100,
    "clean_coarse_label": 20,
    "noisy_coarse_label": 20,
}


def cifar10n(root: Path) -> dict[str, np.ndarray]:
    """Labels of CIFAR-10's training images by people, each int64 (50000,), and the clean ones.

    `random_label1` to `random_label3` are one person's each, `aggre_label` is their majority and
    `worse_label` a wrong one of them where there is any. `clean_label` is CIFAR-10's own, in the
    order of its files.
    """
    return _read_cifar_n(root / "CIFAR-10_human.pt", _CIFAR10N, 50_000)


def cifar100n(root: Path) -> dict[str, np.ndarray]:
    """Labels of CIFAR-100's training images by one person each, fine and coarse, int64 (50000,)."""
    return _read_cifar_n(root / "CIFAR-100_human.pt", _CIFAR100N, 50_000)


def cifar10h(root: Path) -> np.ndarray:
    """How many of some fifty people gave each class to each CIFAR-10 test image, (10000, 10)."""
    return _read_cifar_h(root / "cifar10h-counts.npy", 10_000)


def vote_entropy(votes: np.ndarray) -> np.ndarray:
    """How far people disagreed on each image: the entropy of their votes (n, classes), in nats.

    >>> vote_entropy(np.array([[5, 5], [10, 0]])).round(3).tolist()
    [0.693, 0.0]
    """
    share = votes / votes.sum(1, keepdims=True)
    return np.sum(share * np.log(1 / np.where(share > 0, share, 1)), 1)


def _read_cifar_n(path: Path, keys: dict[str, int], count: int) -> dict[str, np.ndarray]:
    """A zip that torch.save wrote, around a pickle of a dict of arrays.

    `torch.load` with `weights_only` refuses numpy's arrays, so the pickle inside is read here.
    """
    advice = f"Remove it and run: normscope data fetch cifar{max(keys.values())}n."
    try:
        with zipfile.ZipFile(path) as file:
            (inner,) = [m for m in file.infolist() if m.filename.endswith("/data.pkl")]
            if inner.file_size > _MOST_BYTES:
                raise zipfile.BadZipFile
            data = file.read(inner)
    except FileNotFoundError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None
    except Exception:  # damaged files raise errors of any kind
        raise invalid(str(path), "a whole file of labels", "a damaged one", advice) from None
    content = pickles.loads(data, str(path), advice)
    labels = {}
    for key, n_classes in keys.items():
        value = content.get(key) if isinstance(content, dict) else None
        value = np.asarray(value) if isinstance(value, list) else value  # the coarse ones are lists
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise invalid(str(path), f"a dict with integers {key}", value, advice)
        if value.shape != (count,) or value.min() < 0 or value.max() >= n_classes:
            constraint = f"a dict with {count:,} {key} from 0 to {n_classes - 1}"
            raise invalid(str(path), constraint, f"{value.shape}", advice)
        labels[key] = value.astype(np.int64)
    return labels


def _read_cifar_h(path: Path, count: int) -> np.ndarray:
    advice = "Remove it and run: normscope data fetch cifar10h."
    try:
        counts = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise invalid(str(path), "a file that can be read", "nothing", advice) from None
    except Exception:  # damaged files raise errors of any kind
        raise invalid(str(path), "a whole .npy file", "a damaged one", advice) from None
    fits = isinstance(counts, np.ndarray) and counts.shape == (count, 10)
    if not fits or counts.dtype.kind not in "iu":
        raise invalid(str(path), f"integers of shape ({count}, 10)", counts, advice)
    if counts.min() < 0 or counts.sum(1).min() == 0:
        got = "a negative count" if counts.min() < 0 else "an image without answers"
        raise invalid(str(path), "counts of answers", got, advice)
    return counts.astype(np.int64)
