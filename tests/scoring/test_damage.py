"""Damaged files: scores or one line, quickly, in bounded memory, and nothing half written."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from normscope.cli import app, run
from normscope.scoring import fit_reference, open_embeddings, read_labels

from .conftest import embeddings
from .fuzz import (
    BESIDE,
    FITTED,
    WAYS_TO_READ,
    cases,
    moved,
    originals,
    outcome,
    restored,
    valid_files,
)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return valid_files(tmp_path)


@pytest.mark.parametrize("read", WAYS_TO_READ)
def test_undamaged_files_are_scored(tmp_path: Path, files: list[Path], read: str) -> None:
    reference = originals(files, tmp_path / "damaged")
    for file in files:
        came = outcome(file, reference[file.name], tmp_path / "scores.npz", moved=True, read=read)
        assert came == "scored", file.name


def test_damaged_files_give_their_rows_or_one_line(tmp_path: Path, files: list[Path]) -> None:
    reference = originals(files, tmp_path / "damaged")
    found = {}
    for i, (kind, way, content) in enumerate(cases(files, 336, seed=1)):
        path = tmp_path / "damaged" / kind
        path.write_bytes(content)
        how = {"moved": moved(kind, way), "read": WAYS_TO_READ[i // len(files) % 3]}
        came = outcome(path, reference[kind], tmp_path / "scores.npz", **how)
        restored(path, files)
        found[came] = (kind, way, how)
    assert set(found) == {"scored", "refused"}, found


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path, files, capsys) -> None:
    originals(files, tmp_path / "damaged")
    out, codes = tmp_path / "scores.csv", set()
    for i, (kind, _, content) in enumerate(cases(files, len(files), seed=2)):
        path = tmp_path / "damaged" / kind
        path.write_bytes(content)
        words = ["score", path, "--reference", files[0], "--out", out]
        if kind in FITTED:
            words = ["score", files[0], "--reference", path, "--out", out]
        elif i % 3 == 0:
            words = ["score", files[0], "--reference", files[0], "--known-bad", path, "--out", out]
        codes.add(_code([str(word) for word in words]))
        told = capsys.readouterr()
        assert out.exists() == bool(told.out)
        if not told.out:
            assert " must be " in told.err
            assert told.err.count("\n") == 1
        out.unlink(missing_ok=True)
        restored(path, files)
    assert codes == {0, 2}


def _code(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        run(lambda: app(words))
    return int(end.value.code or 0)


def test_a_column_that_claims_more_than_its_rows_need_is_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", embeddings=embeddings(60, seed=0))
    header = {"descr": "<U1000000", "fortran_order": False, "shape": (60,)}
    with (
        zipfile.ZipFile(tmp_path / "z.npz", "a", zipfile.ZIP_DEFLATED) as packed,
        packed.open("id.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(60):
            member.write(bytes(4_000_000))
    with pytest.raises(ValueError, match=r"id of .*must be of at most 4,096 bytes"):
        open_embeddings(tmp_path / "z.npz")


def test_a_head_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", embeddings(60, seed=0))
    content = (tmp_path / "z.npy").read_bytes()
    (tmp_path / "z.npy").write_bytes(b"\x93NUMPY\x02\x00" + b"\xff" * 4 + content[10:])
    with pytest.raises(ValueError, match="a head of 4,294,967,295 bytes"):
        open_embeddings(tmp_path / "z.npy")


@pytest.mark.parametrize("suffix", ["npy", "safetensors", "arrow"])
def test_bytes_that_are_missing_or_added_are_found(tmp_path: Path, files, suffix: str) -> None:
    (tmp_path / "damaged").mkdir()
    kinds = [file for file in files if file.suffix == f".{suffix}" and file.name not in FITTED]
    for file in (file for file in kinds if file.name != BESIDE):
        content = file.read_bytes()
        for at in range(len(content) // 2, len(content) - 400, 97):
            for damaged in (content[:at] + content[at + 8 :], content[:at] + b"ab" + content[at:]):
                path = tmp_path / "damaged" / file.name
                path.write_bytes(damaged)
                with pytest.raises(ValueError, match=" must be "):
                    fit_reference(open_embeddings(path))


def test_labels_are_read_no_further_than_their_rows_need(tmp_path: Path) -> None:
    path = tmp_path / "labels.npy"
    for labels in (np.arange(9), np.array(["cat", "dog", "\U0001f42e"] * 3)):
        np.save(path, labels)
        np.testing.assert_array_equal(read_labels(path, rows=9), labels)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\xff" * 4)
    with pytest.raises(ValueError, match="a character of code"):
        read_labels(path, rows=9)
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="must be a whole file of"):
        read_labels(path, rows=9)
    for shape, kind in (((2 * 10**9,), "<i8"), ((9,), "<U100000"), ((9,), "<f8"), ((9, 1), "<i8")):
        with path.open("wb") as stream:
            head = {"descr": kind, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, head)
            stream.truncate(16 * 10**9)
        with pytest.raises(ValueError, match=r"labels of .* must be"):
            read_labels(path, rows=9)


def test_values_nested_too_deep_for_arrow_are_refused(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    line = '{"id": "a", "embedding": [1.5, 2.0]}\n'
    texts = {
        "first.jsonl": f'{{"id": "b", "embedding": {deep}}}\n{line}',
        "later.jsonl": line * 99_999 + f'{{"id": "b", "embedding": {deep}}}\n',
        "other.jsonl": f'{line}{{"more": {deep}, "embedding": [1, 2]}}\n',
        "cells.csv": f'id,embedding\na,"[1.5, 2]"\nb,"{deep}"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="nested more than 100 deep"):
            list(open_embeddings(tmp_path / name).blocks())
    words = json.dumps({"words": "[{" * 5000 + '\\"[', "embedding": [1.5, 2.0]})
    (tmp_path / "words.jsonl").write_text(f"{words}\n{words}\n")
    (block,) = open_embeddings(tmp_path / "words.jsonl", text="words").blocks()
    assert block.norms.tolist() == [2.5, 2.5]
