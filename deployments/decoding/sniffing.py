"""Why a file that libav does not open is refused, in a sentence."""

from deployments.errors import NotAVideo, StillImage, UnreadableVideo, VideoError

_HEAD_BYTES = 16
_STILLS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"II*\0": "TIFF", b"MM\0*": "TIFF"}
_CONTAINERS = {
    (4, b"ftyp"): "MP4 or QuickTime",
    (4, b"mdat"): "QuickTime",
    (0, b"\x1aE\xdf\xa3"): "Matroska or WebM",
    (8, b"AVI "): "AVI",
    (0, b"FLV"): "Flash",
    (0, b"OggS"): "Ogg",
    (0, b"\x30\x26\xb2\x75"): "Windows Media",
}


def refusal(path: str) -> VideoError:
    """The error for a file that could not be opened."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    for signature, name in _STILLS.items():
        if head.startswith(signature):
            return StillImage(f"The file is a still image ({name}), not a video.")
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return StillImage("The file is a still image (WebP), not a video.")
    for (offset, signature), name in _CONTAINERS.items():
        if head[offset:].startswith(signature):
            return UnreadableVideo(
                f"The file begins like {name}, but its index is missing or damaged: "
                "it was probably cut off before it was whole."
            )
    return NotAVideo("The file is in no video format that is read here.")
