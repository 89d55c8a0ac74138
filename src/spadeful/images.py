"""Image files, read and written with what they hold: 16 bits, alpha, the colour profile."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spadeful.files import replacing

if TYPE_CHECKING:
    from PIL import Image

#: Formats that are written, and the longest side that each can hold.
SIDES = {".png": 2**31 - 1, ".jpg": 65500, ".jpeg": 65500, ".webp": 16383, ".tif": 2**31 - 1, ".tiff": 2**31 - 1}
#: Files that are taken for images.
ENDINGS = (*SIDES, ".bmp", ".gif", ".pgm", ".ppm")
OPAQUE = (".jpg", ".jpeg")
#: How hard photos are compressed, up to 9: with 6, the usual one, it may take twice as long, and saves hardly anything.
PNG_EFFORT = 4
GREY = ("1", "L", "LA", "I;16", "I;16B", "I;16L")
#: Endings of images that are not written.
OTHERS = (
    ".avif",
    ".bmp",
    ".gif",
    ".heic",
    ".heif",
    ".ico",
    ".jfif",
    ".jp2",
    ".jpe",
    ".pbm",
    ".pgm",
    ".pnm",
    ".ppm",
    ".tga",
)
#: Modes that become RGB or RGBA without loss.
MODES = (*GREY, "P", "PA", "RGB", "RGBA")
#: Pixels of an image, unless more are allowed: a small file may claim to hold more than fits the memory.
MOST_PIXELS = 100_000_000
#: For Pillow's own limit of pixels, which is one for all threads.
LIMIT = Lock()


@dataclass(frozen=True, eq=False)
class Photo:
    """An image, upright, and the ICC profile that says what its numbers mean; sRGB without one."""

    pixels: NDArray[Any]  # (h, w, 3 or 4), uint8 or uint16
    profile: bytes | None = None

    @property
    def pillow(self) -> Image.Image:
        """In 8 bits, for Pillow."""
        from PIL import Image

        deep = self.pixels.dtype == np.uint16
        return Image.fromarray(np.rint(self.pixels / 257).astype(np.uint8) if deep else self.pixels)

    def in_profile(self, profile: bytes | None) -> Photo:
        """The same colours in the numbers of another profile. Pillow converts 8 bits only: 16 are refused."""
        if self.profile == profile:
            return self
        from PIL import ImageCms

        try:
            ways = [
                ImageCms.ImageCmsProfile(io.BytesIO(its) if its else ImageCms.createProfile("sRGB"))
                for its in (self.profile, profile)
            ]
            way = ImageCms.buildTransform(ways[0], ways[1], "RGB", "RGB")
            names = [ImageCms.getProfileDescription(its).strip() for its in ways]
        except (OSError, ImageCms.PyCMSError) as error:
            raise ValueError(f"A colour profile must be whole. It cannot be used: {error}; convert to sRGB.") from None
        if self.pixels.dtype == np.uint8:
            colors = np.asarray(way.apply(Photo(self.pixels[:, :, :3]).pillow))
            return Photo(np.concatenate([colors, self.pixels[:, :, 3:]], axis=2), profile)
        # Files name one and the same profile, mostly sRGB, in many ways, or not at all.
        some = np.stack(np.meshgrid(*[np.arange(0, 256, 15, dtype=np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
        if np.abs(np.asarray(way.apply(Photo(some).pillow)).astype(int) - some).max() > 1:
            raise ValueError(
                f"Colours of 16 bits must be in the profile of the source, {names[1]!r}: only 8 bits can be converted. "
                f"Got {names[0]!r} instead; convert the image with another program first, or save it with 8 bits."
            )
        return Photo(self.pixels, profile)


@contextmanager
def unlimited() -> Iterator[None]:
    """Without Pillow's own limit, which warns first: warnings cannot be kept back in one thread alone."""
    from PIL import Image

    with LIMIT:
        own, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = own


@contextmanager
def opened(path: str | Path, most: int, exact: bool = True) -> Iterator[Image.Image]:
    """An image file that can be used as one picture; unless `exact`, of any colours, and of several the first."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as missing:
        raise ImportError("Images need Pillow: pip install 'spadeful[images]'") from missing
    if most < 1:
        raise ValueError(f"Images must be allowed at least 1 pixel. Got {most} instead.")
    if not Path(path).is_file():
        there = "It is a folder" if Path(path).is_dir() else "There is none"
        raise FileNotFoundError(f"{path} must be an image file. {there}.")
    try:
        with unlimited():
            image = Image.open(path)
        with image:
            width, height = image.size
            if width * height > most:
                raise Image.DecompressionBombError(f"{width * height:,}")
            if exact and getattr(image, "is_animated", False) and image.format != "MPO":
                raise ValueError("it holds several pictures. Save each as a file of its own")
            if exact and image.mode not in MODES:
                raise ValueError(f"its colours are {image.mode}. Convert it to RGB first")
            yield image
    except Image.DecompressionBombError as bomb:
        raise ValueError(
            f"{path} must have at most {most:,} pixels. Got {bomb} instead; allow more (--max-pixels) if you trust it."
        ) from None
    except UnidentifiedImageError:
        raise ValueError(f"{path} must be an image. What it holds is none that can be read.") from None
    except (OSError, SyntaxError, ValueError, EOFError, LookupError, struct.error, zlib.error) as error:
        raise ValueError(f"{path} must be an image that can be read whole: {str(error).rstrip('.')}.") from None


def read_photo(path: str | Path, most: int = MOST_PIXELS) -> Photo:
    """An image with at most so many pixels, turned as its EXIF data say."""
    with opened(path, most) as image:
        grey, profile = image.mode in GREY, image.info.get("icc_profile")
        deep, deep_grey = sixteen_bits(image), image.mode.startswith("I;16")
        # The one colour of 16 bits that is transparent, if any: Pillow would look for it in 8 bits.
        clear = image.info.pop("transparency", None) if deep or deep_grey else None
        pixels = upright(image)
        if deep_grey:
            pixels = np.repeat(pixels.astype(np.uint16)[:, :, None], 3, axis=2)
    if deep:
        with opened(path, most) as image:
            image.info.pop("transparency", None)
            tile = image.tile[0]  # type: ignore[attr-defined]
            # Pillow keeps one byte of the two. Told that the other one comes first, it keeps the other one.
            image.tile = [tile._replace(args=f"{deep};16L")]  # type: ignore[attr-defined]
            pixels = pixels.astype(np.uint16) << 8 | upright(image)
    if clear is not None:
        seen = (pixels != np.asarray(clear)).any(axis=2)
        pixels = np.dstack([pixels, np.where(seen, 65535, 0).astype(np.uint16)])
    return Photo(pixels, None if grey else profile)


def read_rgb(path: str | Path, most: int = MOST_PIXELS) -> Image.Image:
    """An image in 8 bits of red, green and blue, upright, whatever it is in: to be looked at, not to be kept."""
    from PIL import Image, ImageOps

    with opened(path, most, exact=False) as image:
        turned = ImageOps.exif_transpose(image)
        if turned.mode.startswith("I;16"):
            turned = Image.fromarray((np.asarray(turned) >> 8).astype(np.uint8))
        return turned.convert("RGB")


def sixteen_bits(image: Image.Image) -> str:
    """The channels of a PNG file with colours of 16 bits; nothing for other images."""
    tiles = getattr(image, "tile", ())
    raw = tiles[0].args if tiles else ""
    if isinstance(raw, tuple):
        raw = raw[0] if raw else ""
    if not isinstance(raw, str) or not raw.startswith(("RGB", "LA")) or ";16" not in raw:
        return ""
    if image.format != "PNG" or raw.startswith("LA"):
        raise ValueError("its 16 bits a channel cannot be read. Save it as PNG, in RGB or RGBA")
    return raw.split(";")[0]


def upright(image: Image.Image) -> NDArray[Any]:
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    if not turned.mode.startswith("I;16"):
        seen = "A" in turned.mode or "transparency" in turned.info
        turned = turned.convert("RGBA" if seen else "RGB")
    return np.array(turned)


def check_format(path: Path, pixels: NDArray[Any] | None = None) -> None:
    """Refuse names of files that an image cannot be written to."""
    ending = path.suffix.lower()
    if ending not in SIDES:
        raise ValueError(f"{path} must end in {', '.join(SIDES)}. Got {path.suffix!r} instead.")
    if pixels is None:
        return
    if ending in OPAQUE and not is_opaque(pixels):
        raise ValueError(f"{path} must be of a format that can be transparent, as the image is. Choose .png or .webp.")
    if max(pixels.shape[:2]) > SIDES[ending]:
        raise ValueError(f"{path} must be of a format for sides of {max(pixels.shape[:2])} pixels. Choose .png.")


def is_opaque(pixels: NDArray[Any]) -> bool:
    return pixels.shape[2] == 3 or bool((pixels[:, :, 3] == np.iinfo(pixels.dtype).max).all())


def write_photo(photo: Photo, path: Path, force: bool = False) -> None:
    """Write an image in the format that the path's ending names. Only PNG keeps 16 bits."""
    check_format(path, photo.pixels)
    if path.suffix.lower() in OPAQUE:
        photo = Photo(photo.pixels[:, :, :3], photo.profile)
    with replacing(path, force) as temporary:
        if photo.pixels.dtype == np.uint16 and path.suffix.lower() == ".png":
            temporary.write_bytes(deep_png(photo))
        else:
            options: dict[str, Any] = {"quality": 95, "subsampling": 0, "compress_level": PNG_EFFORT}
            photo.pillow.save(temporary, icc_profile=photo.profile, **options)  # formats take those that they know


def deep_png(photo: Photo) -> bytes:
    """A PNG file of 16 bits a channel, which Pillow does not write (PNG specification, W3C)."""
    height, width, channels = photo.pixels.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = photo.pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    up = np.full((height, 1 + rows.shape[1]), 2, dtype=np.uint8)  # filter 2: each row less the one above
    up[:, 1:] = rows
    up[1:, 1:] -= rows[:-1]
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    profile = chunk(b"iCCP", b"ICC\0\0" + zlib.compress(photo.profile)) if photo.profile else b""
    parts = (
        chunk(b"IHDR", header),
        profile,
        chunk(b"IDAT", zlib.compress(up.tobytes(), PNG_EFFORT)),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
