"""Real photographs, as scikit-image ships them inside its wheel: nothing is downloaded.

Runs in the tools' environment and in the engine's: it only reads files.
"""

from __future__ import annotations

from pathlib import Path

from rig.errors import RigError

# Colour photographs that lie in the wheel itself (others are fetched when first used).
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee")
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def photograph(site_packages: Path, name: str = "astronaut") -> bytes:
    """The PNG bytes of a photograph, out of an environment that has scikit-image.

    Raises:
        RigError: the name is unknown, or scikit-image is not there or ships it no more.
    """
    if name not in PHOTOGRAPHS:
        raise RigError(
            f"there is no photograph {name}", next_step=f"there are: {', '.join(PHOTOGRAPHS)}"
        )
    path = site_packages / "skimage" / "data" / f"{name}.png"
    try:
        png = path.read_bytes()
    except OSError as error:
        raise RigError(
            f"scikit-image's photograph {name} cannot be read: {error.strerror}",
            where=path,
            next_step="the engine's environment is incomplete: remove it and run again",
        ) from error
    if not png.startswith(_PNG_MAGIC):
        raise RigError("the photograph is not a PNG", where=path)
    return png
