"""Small copies of images, to be embedded in a page."""

from __future__ import annotations

import base64
import io
import os
import stat
import warnings
from pathlib import Path

_SIDE = 128  # pixels
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # EPS would run a program; TIFF prints by itself
_MOST_BYTES = 1 << 25
_MOST_PIXELS = 1 << 24  # half a second at most, and 20 of them on a page
_MOST_OF_JPEG = 1 << 28  # of its scans together, each read at an eighth of its size


def thumbnail(path: Path) -> str | None:
    """An image file as a data URI of at most 128 x 128 pixels; None if it can't be shown.

    Nothing is raised: a page without a picture is still a page.
    """
    from PIL import Image, ImageOps

    try:
        content = _content(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                pixels, most = image.width * image.height, _MOST_PIXELS
                if image.format == "JPEG":
                    pixels, most = pixels * content.count(b"\xff\xda"), _MOST_OF_JPEG
                if pixels > most:
                    return None
                image.draft("RGB", (_SIDE, _SIDE))
                small = ImageOps.exif_transpose(image).convert("RGB")
                small.thumbnail((_SIDE, _SIDE))
                buffer = io.BytesIO()
                small.save(buffer, "JPEG", quality=85)
    except Exception:  # decoders raise anything on damaged files
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _content(path: Path) -> bytes:
    """A regular file of bounded size; a pipe is opened without waiting for who writes to it."""
    with open(path, "rb", opener=_at_once) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise OSError
        return stream.read(_MOST_BYTES)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
