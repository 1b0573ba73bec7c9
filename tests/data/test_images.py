"""Image files of every kind that Pillow knows: decoded as they look, or refused in one line."""

import io
import os
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normscope import data
from normscope.data.folders import read_folder
from normscope.data.images import decoded, fitted, opened

GREY = np.array([[0, 128, 257, 32896], [65535, 65407, 65406, 300]], np.uint16)
EIGHT_BITS = [[0, 0, 1, 128], [255, 255, 254, 1]]  # to the nearest 257th


def saved(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        ("I;16", saved(Image.fromarray(GREY), "PNG")),
        ("I;16B", saved(Image.fromarray(GREY.astype(">u2")), "TIFF")),
        ("I", b"P5 4 2 65535\n" + GREY.astype(">u2").tobytes()),
    ],
    ids=["PNG", "big-endian TIFF", "PGM"],
)
def test_opened_scales_16_bits_to_8(mode: str, content: bytes) -> None:
    assert Image.open(io.BytesIO(content)).mode == mode
    pixels = np.asarray(opened(content, "grey", "Replace it."))
    for channel in range(3):
        np.testing.assert_array_equal(pixels[:, :, channel], EIGHT_BITS)


def test_opened_keeps_a_dark_16_bit_image_dark() -> None:
    dark = b"P5 2 1 65535\n" + np.array([200, 255], ">u2").tobytes()
    assert np.asarray(opened(dark, "dark", "Replace it.")).max() == 1


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_opened_refuses_values_whose_white_is_unknown(dtype) -> None:
    content = saved(Image.fromarray(np.ones((2, 2), dtype)), "TIFF")
    with pytest.raises(ValueError, match=r"x must be an image of at most 16 bits a channel, got"):
        opened(content, "x", "Replace it.")


def palette(transparency: int | bytes) -> bytes:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    return saved(image, "PNG", transparency=transparency)


@pytest.mark.parametrize(
    ("content", "colour"),
    [
        (palette(1), (10, 20, 30)),
        (palette(b"\x00\x80"), (10, 20, 30)),
        (saved(Image.new("CMYK", (2, 2), (0, 0, 0, 55)), "TIFF"), (200, 200, 200)),
        (saved(Image.new("LA", (2, 2), (100, 7)), "PNG"), (100, 100, 100)),
        (saved(Image.new("RGBA", (2, 2), (1, 2, 3, 0)), "PNG"), (1, 2, 3)),
        (saved(Image.new("1", (2, 2), 1), "PNG"), (255, 255, 255)),
    ],
    ids=["palette", "palette with alphas", "CMYK", "LA", "RGBA", "1"],
)
def test_opened_takes_the_colours_of_other_modes_without_a_warning(content, colour) -> None:
    image = opened(content, "x", "Replace it.")
    assert image.mode == "RGB"
    assert image.getpixel((1, 1)) == colour


def header_of_png(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds no pixels."""
    content = b"\x89PNG\r\n\x1a\n"
    for name, body in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ):
        content += struct.pack(">I", len(body)) + name + body
        content += struct.pack(">I", zlib.crc32(name + body))
    return content


@pytest.mark.parametrize("side", [10_000, 60_000])  # Pillow warns of the first, refuses the other
def test_opened_refuses_an_image_too_large_for_memory(tmp_path: Path, side: int) -> None:
    (tmp_path / "large.png").write_bytes(header_of_png(side, side))
    with pytest.raises(ValueError, match=r"large.png must be an image of at most 89,478,485 pixel"):
        decoded([tmp_path / "large.png"] * 4, 8, "Replace it.")


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000), (300, 200), (64, 64), (7, 90)])
def test_fitted_is_the_centre_of_the_whole_image_resized(size: tuple[int, int]) -> None:
    """Without the whole: for the strips that would take 3 GB."""
    width, height = size
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    wave = (127 + 100 * np.sin(x / 40) * np.cos(y / 40)).astype(np.uint8)
    image = Image.fromarray(wave).convert("RGB")
    got = fitted(image, 128)
    assert got.size == (128, 128)
    near = min(size) * 5  # a centre that holds all that is seen
    left, top = max(0, (width - near) // 2), max(0, (height - near) // 2)
    part = image.crop((left, top, min(width, left + near), min(height, top + near)))
    scale = 128 / min(size)
    whole = part.resize((round(part.width * scale), round(part.height * scale)), 3)
    left, top = (whole.width - 128) // 2, (whole.height - 128) // 2
    expected = whole.crop((left, top, left + 128, top + 128))
    difference = np.asarray(got).astype(int) - np.asarray(expected)
    assert abs(difference).max() <= 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "link to nothing"])
@pytest.mark.parametrize("side", [None, 32])
def test_folder_never_opens_what_is_no_regular_file(
    tmp_path: Path, write_images, monkeypatch, kind: str, side: int | None
) -> None:
    write_images(tmp_path / "own", each=1, sizes=[(32, 32)])
    odd = tmp_path / "own" / "train" / "a" / "x.png"
    monkeypatch.chdir(odd.parent)  # the name of a socket must be short
    if kind == "fifo":
        os.mkfifo(odd)
    elif kind == "folder":
        odd.mkdir()
    elif kind == "link to nothing":
        odd.symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "socket":
            server.bind(odd.name)
        with pytest.raises(ValueError, match=r"a/x.png must be a whole image, got 'no reg"):
            read_folder(tmp_path / "own", "own", side=side, lazy=True)
    if kind != "link to nothing":
        with pytest.raises(ValueError, match=r"a/x.png must be a whole image, got 'no reg"):
            opened(odd, str(odd), "Replace it.")


def test_folder_follows_links_to_images(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=1, sizes=[(32, 32)])
    (tmp_path / "train" / "a" / "1.png").symlink_to("0.png")
    assert len(data.load(f"folder:{tmp_path}").train) == 3
