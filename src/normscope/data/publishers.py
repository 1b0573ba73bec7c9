"""Where datasets are published, and the sums that public sources record of their files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A file as its publisher offers it.

    Args:
        url: where.
        sha256: of the whole file, as public sources record it; None where none does.
        size: in bytes; None where it is not known.
        into: folder below the data folder that it belongs in, or "" for the data folder itself.
    """

    url: str
    sha256: str | None
    size: int | None
    into: str = ""

    @property
    def file(self) -> str:
        """Its name."""
        return self.url.rsplit("/", 1)[1]


_OXFORD = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
_CIFAR_N = "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data"
_CIFAR_H = "https://raw.githubusercontent.com/jcpeterson/cifar-10h/master/data"

# SHA-256: Keras has CIFAR's, TensorFlow Datasets the flowers' and MNIST's; repositories that use
# CIFAR-10N and CIFAR-100N write theirs down. For the other two none was found.
CIFAR10 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    170_498_071,
)
CIFAR100 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    169_001_437,
)
FLOWERS102 = (
    Archive(
        f"{_OXFORD}/102flowers.tgz",
        "2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246",
        344_862_509,
        "flowers-102",
    ),
    Archive(
        f"{_OXFORD}/imagelabels.mat",
        "4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d",
        502,
        "flowers-102",
    ),
    Archive(
        f"{_OXFORD}/setid.mat",
        "46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd",
        14_989,
        "flowers-102",
    ),
)
TINY_IMAGENET = Archive("http://cs231n.stanford.edu/tiny-imagenet-200.zip", None, 248_100_043)
CIFAR10N = Archive(
    f"{_CIFAR_N}/CIFAR-10_human.pt",
    "873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310",
    2_401_007,
)
CIFAR100N = Archive(
    f"{_CIFAR_N}/CIFAR-100_human.pt",
    "bd2d80409754d420292d622e15e25248ba21e37d27429efac49c8da723f44394",
    1_000_959,
)
CIFAR10H = Archive(f"{_CIFAR_H}/cifar10h-counts.npy", None, 800_128)


def _idx(base: str, into: str, files: dict[str, tuple[str, int]]) -> tuple[Archive, ...]:
    """The four files of MNIST's kind: name -> SHA-256 and size."""
    return tuple(Archive(f"{base}/{name}.gz", *about, into) for name, about in files.items())


MNIST = _idx(
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "mnist",
    {
        "train-images-idx3-ubyte": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            9_912_422,
        ),
        "train-labels-idx1-ubyte": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            28_881,
        ),
        "t10k-images-idx3-ubyte": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            1_648_877,
        ),
        "t10k-labels-idx1-ubyte": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            4_542,
        ),
    },
)
FASHION_MNIST = _idx(
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "fashion-mnist",
    {
        "train-images-idx3-ubyte": (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            26_421_880,
        ),
        "train-labels-idx1-ubyte": (
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            29_515,
        ),
        "t10k-images-idx3-ubyte": (
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            4_422_102,
        ),
        "t10k-labels-idx1-ubyte": (
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            5_148,
        ),
    },
)
