"""All pictures are read here: bytes -> a checked picture [H, W, 3] of values 0..255, or an error that names it.

JPEG, PNG and WebP only, recognised by their first bytes, not by their name. The size in the header is checked before a
pixel is decoded, so that a small file cannot expand to gigabytes. A truncated file is refused, not filled with grey.
"""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, brief, near_file, need

Pixels = NDArray[np.uint8]  # [H, W, 3]: red, green, blue

MOST_PIXELS = 24_000_000
MOST_BYTES = 64 << 20  # of a file; the largest camera JPEGs of 24 megapixels have about half of it
_MOST_SCANS = 64  # of a progressive JPEG; cameras write about ten, and each is a pass over all pixels
_ORIENTATION = 0x0112  # in EXIF
_PREVIEW = 2  # a large JPEG is decoded at most this many times larger than needed


def picture_format(data: bytes, name: str) -> str:
    """JPEG, PNG or WEBP, from the first bytes; anything else is refused."""
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    what = "is empty" if not data else "has another format"
    raise DataError(f"{name} {what}; a picture must be JPEG, PNG or WebP.")


def read_picture(picture: bytes | str | Path, side: int, name: str = "") -> Pixels:
    """Read a file or its bytes, and return the centre crop as [side, side, 3].

    It is rotated by its EXIF orientation, transparency becomes white, and greys and other colour spaces become RGB.
    `name` is for the error messages of bytes.
    """
    if isinstance(picture, bytes):
        return _decode(picture, side, name or "The picture")
    return _decode(file_bytes(Path(picture)), side, str(picture))


def as_tensor(pictures: Sequence[Pixels]) -> Tensor:
    """Pictures of the same size as values 0..1, [B, 3, H, W]."""
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).to(torch.float32) / 255


def encode_png(pixels: Pixels) -> bytes:
    """The picture as the bytes of a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
    return buffer.getvalue()


def file_bytes(path: Path) -> bytes:
    """The bytes of a picture, if it is not too large."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a picture file.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} has {path.stat().st_size >> 20} MiB; at most {MOST_BYTES >> 20} are read.")
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no picture {path}; check the path.{near_file(path)}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"The picture {path} cannot be read: {error}.") from None


def _open(data: bytes, name: str) -> Any:
    """The picture with its header checked and no pixel decoded."""
    Image = need("PIL.Image", "Reading pictures needs Pillow; install it: pip install 'regard[images]'.", DataError)
    if len(data) > MOST_BYTES:
        raise DataError(f"{name} has {len(data) >> 20} MiB; at most {MOST_BYTES >> 20} are read.")
    kind = picture_format(data, name)
    if kind == "JPEG" and data.count(b"\xff\xda") > _MOST_SCANS:
        raise DataError(f"{name} is a JPEG with more than {_MOST_SCANS} scans, which is too slow; save it again.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the check below is stricter
        try:
            image = Image.open(io.BytesIO(data), formats=[kind])
        except Image.DecompressionBombError:
            raise DataError(f"{name} has more than {MOST_PIXELS // 1_000_000} megapixels; scale it down.") from None
        except Exception as error:  # a decoder may raise anything on bad bytes
            raise DataError(
                f"{name} is damaged and cannot be read as {kind}: {brief(error) or type(error).__name__}."
            ) from None
    if image.width * image.height > MOST_PIXELS:
        size = f"{image.width} x {image.height}"
        raise DataError(
            f"{name} has {size} pixels; at most {MOST_PIXELS // 1_000_000} megapixels are read. Scale it down."
        )
    return image


def _decode(data: bytes, side: int, name: str) -> Pixels:
    from PIL import Image, ImageOps

    with _open(data, name) as image:
        try:
            if image.format == "JPEG":
                image.draft("RGB", (_PREVIEW * side, _PREVIEW * side))
            image.load()
            square = ImageOps.fit(_plain(image), (side, side), Image.Resampling.BICUBIC)
            # Rotate the small crop instead of the whole picture; the result is the same.
            square.getexif()[_ORIENTATION] = image.getexif().get(_ORIENTATION, 1)
            ImageOps.exif_transpose(square, in_place=True)
        except Exception as error:  # a decoder may raise anything on bad bytes
            raise DataError(f"{name} is truncated or damaged: {brief(error) or type(error).__name__}.") from None
    return np.array(square, dtype=np.uint8)


def _plain(image: Any) -> Any:
    """The picture in RGB; transparent parts on white, 16-bit greys scaled to 8 bits."""
    from PIL import Image

    if image.mode in ("I", "I;16", "I;16B", "I;16L", "F"):
        values = np.asarray(image, dtype=np.float32)
        return Image.fromarray((values / 257).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        white = Image.new("RGB", image.size, "white")
        clear = image if image.mode == "RGBA" else image.convert("RGBA")  # a copy of 24 megapixels is 96 MB
        white.paste(clear, mask=clear.getchannel("A"))
        return white
    return image if image.mode == "RGB" else image.convert("RGB")
