"""Damaged files: scores or one line, quickly, in bounded memory, and nothing half written."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from normscope.cli import app, run
from normscope.scoring import fit_reference, open_embeddings

from .conftest import embeddings
from .fuzz import FITTED, cases, moved, outcome, valid_files


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "damaged").mkdir()
    return valid_files(tmp_path)


def test_undamaged_files_are_scored(tmp_path: Path, files: list[Path]) -> None:
    for file in files:
        reference = files[0] if file.name == FITTED else file
        assert outcome(file, reference, tmp_path / "scores.npz", moved=True) == "scored"


def test_damaged_files_give_their_rows_or_one_line(tmp_path: Path, files: list[Path]) -> None:
    found = {}
    for kind, way, content in cases(files, 420, seed=1):
        path = tmp_path / "damaged" / kind
        path.write_bytes(content)
        reference = files[0] if kind == FITTED else tmp_path / kind
        came = outcome(path, reference, tmp_path / "scores.npz", moved=moved(kind, way))
        found[came] = (kind, way)
    assert set(found) == {"scored", "refused"}, found


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path, files, capsys) -> None:
    out, codes = tmp_path / "scores.csv", set()
    for kind, _, content in cases(files, len(files), seed=2):
        path = tmp_path / "damaged" / kind
        path.write_bytes(content)
        words = [path, "--reference", files[0]]
        if kind == FITTED:
            words = [files[0], "--reference", path]
        codes.add(_code(["score", *map(str, words), "--out", str(out)]))
        told = capsys.readouterr()
        assert out.exists() == bool(told.out)
        if not told.out:
            assert " must be " in told.err
            assert told.err.count("\n") == 1
        out.unlink(missing_ok=True)
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
    for file in (file for file in files if file.suffix == f".{suffix}"):
        content = file.read_bytes()
        for at in range(len(content) // 2, len(content) - 400, 97):
            for damaged in (content[:at] + content[at + 8 :], content[:at] + b"ab" + content[at:]):
                path = tmp_path / "damaged" / file.name
                path.write_bytes(damaged)
                with pytest.raises(ValueError, match=" must be "):
                    fit_reference(open_embeddings(path))
