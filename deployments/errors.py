"""Everything that can go wrong, once.

ReelserveError
├── VideoError                 the video is at fault: 4xx, never retried, no decoder is blamed
│   ├── NotAVideo              not_a_video            no container that we know
│   ├── UnreadableVideo        unreadable_video       a container without its index
│   ├── StillImage             still_image
│   ├── NoVideoStream          no_video               audio only, cover art only, no tracks
│   ├── NoFrames               no_frames              a video stream from which no frame decodes
│   ├── RangeOutsideVideo      range_outside_video    start_seconds lies at or after the end
│   └── VideoHangsDecoders     decode_hung            different children stalled at the same place
├── RequestError               the request is at fault: 4xx
│   ├── EmptyBody              empty_body
│   ├── InvalidRequest         invalid_request        unknown or bad values, JSON that is none
│   ├── AmbiguousSource        ambiguous_source       both a file and a path
│   ├── MissingSource          missing_source         neither
│   ├── TooLarge               too_large
│   ├── PathNotAllowed         path_not_allowed       outside the media roots, or through a link out
│   ├── FileNotFound           file_not_found
│   └── UnsupportedBody        unsupported_body       a content type that we don't read
├── DecoderError               the decoder is at fault: always continued elsewhere
│   ├── DecodeHung             decode_hung_elsewhere  a child that should work made no progress
│   ├── DecodeCrashed          decode_crashed         a child died
│   └── DecoderUnavailable     decoder_unavailable    no replica, a frozen replica, or a dead one
├── StorageFull                storage_full           507, no room in the media directory
├── PartUnavailable            part_unavailable       503, a model part did not answer in time
├── DeadlineExceeded           deadline_exceeded      504, the request's own deadline
└── Overloaded                 overloaded             503 with Retry-After

Errors cross process borders by pickle, which calls the class with `args`: whatever a constructor
takes has to be handed to `super().__init__`.
"""

from typing import ClassVar


class ReelserveError(Exception):
    """Base of the tree. `str(error)` is the sentence that the caller reads."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"


class VideoError(ReelserveError):
    """What is wrong with the video. 4xx; never retried, never counted against a decoder."""

    status = 422
    code = "video_error"


class NotAVideo(VideoError):
    status, code = 415, "not_a_video"


class UnreadableVideo(VideoError):
    code = "unreadable_video"


class StillImage(VideoError):
    status, code = 415, "still_image"


class NoVideoStream(VideoError):
    code = "no_video"


class NoFrames(VideoError):
    code = "no_frames"


class RangeOutsideVideo(VideoError):
    code = "range_outside_video"


class VideoHangsDecoders(VideoError):
    code = "decode_hung"


class RequestError(ReelserveError):
    """What is wrong with the request. 4xx."""

    status = 400
    code = "request_error"


class EmptyBody(RequestError):
    code = "empty_body"


class InvalidRequest(RequestError):
    code = "invalid_request"


class AmbiguousSource(RequestError):
    code = "ambiguous_source"


class MissingSource(RequestError):
    code = "missing_source"


class TooLarge(RequestError):
    status, code = 413, "too_large"


class PathNotAllowed(RequestError):
    status, code = 403, "path_not_allowed"


class FileNotFound(RequestError):
    status, code = 404, "file_not_found"


class UnsupportedBody(RequestError):
    status, code = 415, "unsupported_body"


class DecoderError(ReelserveError):
    """A decoder failed; the video may be fine. Always continued elsewhere."""

    status = 503
    code = "decoder_error"
    reason: ClassVar[str] = "failed"  # what `fallback_reason` in the answer says


class DecodeHung(DecoderError):
    code, reason = "decode_hung_elsewhere", "hung"


class DecodeCrashed(DecoderError):
    code, reason = "decode_crashed", "crashed"


class DecoderUnavailable(DecoderError):
    code, reason = "decoder_unavailable", "unavailable"


class StorageFull(ReelserveError):
    status, code = 507, "storage_full"


class PartUnavailable(ReelserveError):
    status, code = 503, "part_unavailable"


class DeadlineExceeded(ReelserveError):
    status, code = 504, "deadline_exceeded"


class Overloaded(ReelserveError):
    status, code = 503, "overloaded"


def _tree(root: type[ReelserveError]) -> dict[str, type[ReelserveError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


VIDEO_ERRORS = _tree(VideoError)
"""Code -> class: how a decode child names what is wrong with a video."""
