"""Damaged files of every format: each gives scores, or one line that says what is wrong.

python -m tests.scoring.fuzz 1500        # in one process; prints a table
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from normscope.scoring import (
    drift,
    fit_reference,
    fit_trust,
    load_reference,
    open_embeddings,
    score_file,
)

from .conftest import KINDS, embeddings, write_file

FITTED = ("fitted.npz", "fitted.safetensors")  # saved references
BESIDE = "npy.length.npy"  # a column of npy.npy
WAYS_TO_READ = ("norm", "trust", "drift")
SECONDS, MEGABYTES = 10, 1000  # at most, for a file


def damaged(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """One way of damage, and the content after it."""
    way = chance.choice(list(WAYS))
    return way, WAYS[way](bytearray(content), chance)


def _flipped(content: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 4, 32])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def _head_byte(content: bytearray, chance: random.Random) -> bytes:
    content[chance.randrange(min(300, len(content)))] = chance.randrange(256)
    return bytes(content)


def _tail_byte(content: bytearray, chance: random.Random) -> bytes:
    content[-1 - chance.randrange(min(400, len(content)))] = chance.randrange(256)
    return bytes(content)


def _cut(content: bytearray, chance: random.Random) -> bytes:
    return bytes(content[: chance.randrange(len(content))])


def _inserted(content: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    content[at:at] = chance.randbytes(chance.choice([1, 2, 8, 100]))
    return bytes(content)


def _removed(content: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    del content[at : at + chance.choice([1, 2, 8, 100])]
    return bytes(content)


def _huge(content: bytearray, chance: random.Random) -> bytes:
    """A number that may be a size becomes a very large one."""
    width = chance.choice([2, 4, 8])
    limit = min(len(content), 2000)
    at = chance.randrange(max(1, limit - width))
    at = at if chance.random() < 0.5 else max(0, len(content) - width - at)
    value = chance.choice([2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1])
    content[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(content)


def _digit(content: bytearray, chance: random.Random) -> bytes:
    """A digit in a text, such as a head, grows."""
    places = [i for i, c in enumerate(content[:3000]) if chr(c).isdigit()]
    if places:
        at = chance.choice(places)
        content[at : at + 1] = chance.choice([b"-1", b"9" * 12, b"1e9", b'"', b"[", b"\n", b"\xff"])
    return bytes(content)


def _doubled(content: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    content[at:at] = content[at : at + chance.choice([8, 64, 1000])]
    return bytes(content)


def _zeros(content: bytearray, chance: random.Random) -> bytes:
    at, length = chance.randrange(len(content)), chance.choice([8, 64, 1000])
    content[at : at + length] = bytes(len(content[at : at + length]))
    return bytes(content)


WAYS = {
    function.__name__[1:]: function
    for function in (
        *(_flipped, _head_byte, _tail_byte, _cut, _inserted, _removed, _huge, _digit),
        *(_doubled, _zeros),
    )
}


def moved(kind: str, way: str) -> bool:
    """Whether a file's own form says where its rows are, and bytes before them may be others."""
    return way in ("cut", "inserted", "removed", "doubled") and not kind.endswith(("csv", "jsonl"))


def cases(files: list[Path], number: int, *, seed: int = 0) -> Iterator[tuple[str, str, bytes]]:
    """Name, way and content of damaged copies, the same ones for each seed."""
    chance = random.Random(seed)
    for i in range(number):
        file = files[i % len(files)]
        yield file.name, *damaged(file.read_bytes(), chance)


def outcome(
    path: Path, reference: Path, out: Path, *, moved: bool = False, read: str = "norm"
) -> str:
    """What reading a file comes to: "scored", "refused", or what should not happen.

    Args:
        path: of the damaged file.
        reference: the one that it was.
        out: for scores.
        moved: whether bytes are missing or added: other rows than the file's are wrong then.
        read: scored by the "norm" or by "trust", or compared by "drift" with a covariate.
    """
    before = time.monotonic()
    try:
        if path.name == BESIDE:
            path = path.with_name("npy.npy")
            read = "drift"
        if read == "drift" and path.name not in FITTED:
            (old,) = open_embeddings(reference, covariates=["length"]).blocks()
            windows = {"old": 1.01 * old.z, "new": open_embeddings(path, covariates=["length"])}
            drift(windows, covariates={"old": old.covariates})  # the same rows would be refused
            found = "scored"
        else:
            found = _scored(path, reference, out, moved=moved, trust=read == "trust")
    except ValueError as error:
        form = " must be " in str(error) and "\n" not in str(error)
        found = "refused" if form else f"another error: {type(error).__name__}: {error}"
    except Exception as error:
        found = f"traceback: {type(error).__name__}: {error}"
    left = list(out.parent.glob(f".{out.name}*"))
    wrote = read != "drift" or path.name in FITTED
    if left or out.exists() != (wrote and found in ("scored", "other rows")):
        found = f"half written: {found}"
    out.unlink(missing_ok=True)
    seconds = time.monotonic() - before
    return found if seconds < SECONDS else f"hang: {seconds:.0f} s, {found}"


def _scored(path: Path, reference: Path, out: Path, *, moved: bool, trust: bool) -> str:
    known = None
    if path.name in FITTED:  # a reference instead
        known, path = load_reference(path), reference
    if known is None:
        known = (fit_trust if trust else fit_reference)(open_embeddings(reference))
    beside = path.suffix not in (".npy", ".safetensors")
    score_file(open_embeddings(path, text="words" if beside else None), known, out)
    with np.load(out) as scores:
        return "other rows" if moved and _others(scores["norm"], reference) else "scored"


def _others(norms: np.ndarray, reference: Path) -> bool:
    """Whether these are not the first rows of a file."""
    whole = np.concatenate([block.norms for block in open_embeddings(reference).blocks()])
    return not np.array_equal(norms, whole[: len(norms)])


def valid_files(folder: Path) -> list[Path]:
    """Small valid files of every format with columns, and saved references."""
    z, ids = embeddings(60, seed=0), np.array([f"row {i}" for i in range(60)])
    words = np.array([f"text {i}" for i in range(60)])
    files = []
    for kind in KINDS:
        suffix = kind.partition("-")[0]
        path = folder / f"{kind}{'.stream' * (kind == 'arrow-list')}.{suffix}"
        length = np.arange(60) % 9
        files.append(write_file(path, z, kind, id=ids, words=words, length=length))
    saved = [folder / name for name in FITTED]
    for path, fit in zip(saved, (fit_reference, fit_trust), strict=True):
        fit(open_embeddings(files[0])).save(path)
    return [*files, folder / BESIDE, *saved]


def originals(files: list[Path], damaged: Path) -> dict[str, Path]:
    """What each damaged file was; columns beside one of them are put beside it."""
    damaged.mkdir()
    npy = files[KINDS.index("npy")]
    for file in files[0].parent.glob("npy.*npy"):
        (damaged / file.name).write_bytes(file.read_bytes())
    rest = dict.fromkeys((*FITTED, BESIDE), npy)
    return {file.name: file for file in files} | rest


def restored(path: Path, files: list[Path]) -> None:
    """Undo the damage of what other files need."""
    for file in files:
        if file.name == path.name and path.name in ("npy.npy", BESIDE):
            path.write_bytes(file.read_bytes())


def main(number: int) -> int:
    """Damage and score; print what came of it. How many went wrong."""
    warnings.simplefilter("error")
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = valid_files(folder)
        reference = originals(files, folder / "damaged")
        for i, (kind, way, content) in enumerate(cases(files, number)):
            path = folder / "damaged" / kind
            path.write_bytes(content)
            before = _megabytes()
            how = {"moved": moved(kind, way), "read": WAYS_TO_READ[i // len(files) % 3]}
            came = outcome(path, reference[kind], folder / "scores.npz", **how)
            restored(path, files)
            if _megabytes() - before > MEGABYTES:
                came = f"memory: {_megabytes() - before:.0f} MB more, {came}"
            found[kind, came if came in ("scored", "refused") else "wrong"] += 1
            if came not in ("scored", "refused"):
                wrong.append(f"{kind}, {way}: {came}")
    for kind in reference:
        counts = {what: found[kind, what] for what in ("scored", "refused", "wrong")}
        print(f"{kind:<24}", *(f"{n:>5} {what}" for what, n in counts.items()))
    print(f"{number} files, {len(wrong)} wrong, peak {_megabytes():.0f} MB", *wrong, sep="\n")
    return len(wrong)


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
