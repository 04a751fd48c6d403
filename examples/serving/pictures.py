"""From the body of a request to pixels, with bounds on what strangers send: for `service.py` and `ray_service.py`."""

from __future__ import annotations

import io

import numpy as np
from fastapi import HTTPException, Request
from numpy.typing import NDArray
from PIL import Image

# A picture of 20 KB may unpack to a gigabyte: what is larger than this is refused before it is decoded.
MOST_BYTES, MOST_PIXELS, FORMATS = 10 << 20, 1 << 24, ("JPEG", "PNG", "WEBP")

# Pictures that are decoded at a time.
DECODERS = 4


async def body_of(request: Request) -> bytes:
    """The body, which is refused as soon as it is too long."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"the body has more than {MOST_BYTES} bytes")
    return bytes(body)


def decode(encoded: bytes, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A picture file -> RGB bytes (height, width, 3)."""
    with Image.open(io.BytesIO(encoded), formats=FORMATS) as picture:  # reads the head alone
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"the picture has {picture.width} x {picture.height} pixels")
        return np.asarray(picture.convert("RGB").resize(size, Image.Resampling.BILINEAR))
