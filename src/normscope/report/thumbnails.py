"""Small copies of images, to be embedded in a page."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path

_SIDE = 128  # pixels
_MOST_BYTES = 1 << 26
_MOST_PIXELS = 1 << 26


def thumbnail(path: Path) -> str | None:
    """An image file as a data URI of at most 128 x 128 pixels; None if it can't be shown.

    Nothing is raised: a page without a picture is still a page.
    """
    from PIL import Image, ImageOps

    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:  # a device has no end
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                if image.width * image.height > _MOST_PIXELS:
                    return None
                image.draft("RGB", (_SIDE, _SIDE))
                small = ImageOps.exif_transpose(image).convert("RGB")
                small.thumbnail((_SIDE, _SIDE))
                buffer = io.BytesIO()
                small.save(buffer, "JPEG", quality=85)
    except Exception:  # decoders raise anything on damaged files
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
