"""Thumbnails: a picture, or None, whatever the file holds; never a wait."""

import base64
import io
import os
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from PIL import EpsImagePlugin, Image

from normscope.report.thumbnails import thumbnail


def saved(path: Path, kind: str, side: int = 300, **options: object) -> Path:
    Image.new("RGB", (side, side // 2), (200, 30, 30)).save(path, kind, **options)
    return path


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_an_image_is_shown_small(tmp_path: Path, kind: str) -> None:
    found = thumbnail(saved(tmp_path / "picture", kind))
    assert found is not None
    small = Image.open(io.BytesIO(base64.b64decode(found.partition(",")[2])))
    assert small.size == (128, 64)
    assert small.getpixel((5, 5)) == pytest.approx((200, 30, 30), abs=12)


def test_only_formats_that_are_read_by_pillow_itself_are_opened(
    tmp_path: Path, monkeypatch
) -> None:
    run = MagicMock()
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    assert thumbnail(saved(tmp_path / "a.png", "EPS")) is None
    assert thumbnail(saved(tmp_path / "b.png", "TIFF")) is None
    assert not run.called


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "long.png").write_bytes(b"")
    os.truncate(tmp_path / "long.png", 1 << 40)
    names = ["pipe.png", "zero.png", "long.png", "none.png", ".", "\0.png", "a" * 5000]
    assert [thumbnail(tmp_path / name) for name in names] == [None] * len(names)


def test_an_image_that_would_take_long_is_not_decoded(tmp_path: Path) -> None:
    assert thumbnail(saved(tmp_path / "bomb.png", "PNG", side=6000)) is None
    whole = saved(tmp_path / "whole.jpg", "JPEG", side=6000, progressive=True)
    assert thumbnail(whole) is not None
    content = whole.read_bytes()
    last = content[content.rfind(b"\xff\xc4") : -2]  # a scan with its table
    (tmp_path / "bomb.jpg").write_bytes(content[:-2] + 5000 * last + content[-2:])
    start = time.monotonic()
    assert thumbnail(tmp_path / "bomb.jpg") is None
    assert time.monotonic() - start < 5
