"""A path that a caller names: only a regular file inside a media root is opened."""

import os
import stat
from pathlib import Path

from deployments.errors import FileNotFound, InvalidRequest, PathNotAllowed


def resolve(path: str, roots: tuple[Path, ...]) -> str:
    """The real path behind `path`; raises before it says anything about a file outside."""
    if not roots:
        raise PathNotAllowed(
            "No path may be read: `args.media.roots` in serve_config.yaml is empty."
        )
    _check_text(path)
    real, real_roots = os.path.realpath(path), tuple(map(Path, map(os.path.realpath, roots)))
    # Both: as it is written, so that no link outside is asked about; and where it leads.
    if not (
        _is_inside(os.path.normpath(path), roots + real_roots) and _is_inside(real, real_roots)
    ):
        raise PathNotAllowed("The path is outside the media roots, or leads out of them.")
    _check_file(real)
    # Open: who may write in a root can put a link here now. Closing that takes a descriptor
    # handed to the decode child in place of a name.
    return real


def _check_text(path: str) -> None:
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidRequest("The path holds characters that no file name has.") from error
    if b"\0" in raw:
        raise InvalidRequest("The path holds a zero byte.")
    if not path.startswith("/"):
        raise InvalidRequest("The path must be absolute: it starts with a slash.")


def _is_inside(path: str, roots: tuple[Path, ...]) -> bool:
    return any(Path(path).is_relative_to(root) for root in roots)


def _check_file(real: str) -> None:
    try:
        mode = os.stat(real).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFound("There is no such file in the media roots.") from error
    except OSError as error:
        raise InvalidRequest(f"The path cannot be followed: {error.strerror}.") from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise InvalidRequest(f"The path names {kind}, not a file.")
    if not os.access(real, os.R_OK):
        raise PathNotAllowed("The service may not read this file.")
