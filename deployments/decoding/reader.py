"""From a file to its pictures in order, whatever the encoding. The one interface to a backend."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import av

from deployments.decoding.clipping import Picture
from deployments.decoding.clock import Clock
from deployments.decoding.pixels import SoftwarePixels, orientation, shown_size
from deployments.decoding.sniffing import refusal
from deployments.errors import NoFrames, NoVideoStream, StillImage, UnreadableVideo
from deployments.frames import VideoInfo

# What a container may be. Playlists, manifests, image sequences, devices and text open other files
# or the network; audio containers are here only to be refused by name.
FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,h264,hevc,vvc,m4v,flv,asf,"
    "ogg,ivf,obu,gif,apng,mjpeg,yuv4mpegpipe,dv,mxf,mp3,wav,flac,aac"
)
# PyAV 18 fails on metadata that are not UTF-8 unless told so; 19 takes them, and takes no argument.
_ANY_METADATA: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)
_COVER_ART = 1024  # AV_DISPOSITION_ATTACHED_PIC
_IMAGE_TILE = 524288  # AV_DISPOSITION_DEPENDENT


class Reader(Protocol):
    """A decoding backend. `beat` is to be called for every packet and every frame."""

    backend: ClassVar[str]  # "cpu" or "cuda"
    info: VideoInfo
    warnings: list[str]

    def __init__(self, path: str, *, beat: Callable[[], None]) -> None:
        """Open and look at the first frame. Raises VideoError."""

    def pictures(self) -> Iterator[Picture]:
        """Every frame once, in presentation order."""

    def close(self) -> None: ...


class SoftwareReader:
    """libav on the CPU."""

    backend = "cpu"

    def __init__(self, path: str, *, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._bad_packets = 0
        self.warnings: list[str] = []
        self._container = _open(path)
        try:
            self._stream = _video_stream(self._container)
            # Frame threads lose frames of a damaged file that slice threads still give.
            self._stream.thread_type = "SLICE"
            self._frames = self._decode()
            self._first = self._first_frame()
            sar = self._stream.sample_aspect_ratio
            self._pixels = SoftwarePixels(sar)
            self.info = _info(self._container, self._stream, self._first, sar)
        except BaseException:
            self._container.close()
            raise

    def pictures(self) -> Iterator[Picture]:
        clock = Clock(self._first, self._stream)
        yield self._picture(self._first, clock)
        for frame in self._frames:
            yield self._picture(frame, clock)
        self._warn_of_damage(clock)

    def close(self) -> None:
        self._container.close()

    def _first_frame(self) -> av.VideoFrame:
        first = next(self._frames, None)
        if first is None:
            raise NoFrames("The file has a video stream, but not one frame of it decodes.")
        return first

    def _decode(self) -> Iterator[av.VideoFrame]:
        """Packet by packet: after a damaged one the next may be whole."""
        packets = self._container.demux(self._stream)
        while True:
            self._beat()
            try:
                packet = next(packets)
            except StopIteration:
                return
            except av.error.FFmpegError as error:
                self.warnings.append(f"The file cannot be read any further: {error.strerror}.")
                yield from self._decode_packet(None)
                return
            if packet.has_sidedata("encryption_info"):
                raise _encrypted()  # libav decodes it to garbage without a word
            yield from self._decode_packet(packet)

    def _decode_packet(self, packet: av.Packet | None) -> Iterator[av.VideoFrame]:
        """The frames that a packet completes; None: those that the decoder still holds."""
        for frame in self._try(packet):
            self._beat()
            yield frame

    def _try(self, packet: av.Packet | None) -> list[av.VideoFrame]:
        try:
            return self._stream.codec_context.decode(packet)
        except EOFError:  # a second flush
            return []
        except av.error.FFmpegError:
            self._bad_packets += 1
            return []

    def _picture(self, frame: av.VideoFrame, clock: Clock) -> Picture:
        pts_seconds, duration_seconds = clock.read(frame)
        return Picture(
            pts_seconds=pts_seconds,
            duration_seconds=duration_seconds,
            rgb=lambda spec: self._pixels.rgb(frame, spec),
        )

    def _warn_of_damage(self, clock: Clock) -> None:
        if self._bad_packets:
            self.warnings.append(f"{self._bad_packets} damaged packets could not be decoded.")
        promised_seconds = self.info.duration_seconds_from_header
        if promised_seconds and clock.end_seconds < 0.98 * promised_seconds - 0.5:
            self.warnings.append(
                f"The header promises {promised_seconds:.2f} s, "
                f"but the video breaks off at {clock.end_seconds:.2f} s."
            )


def _open(path: str) -> av.container.InputContainer:
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    try:
        # The prefix keeps libav from reading a protocol out of the file's name.
        return av.open(f"file:{path}", options=options, **_ANY_METADATA)
    except (av.error.FFmpegError, EOFError) as error:
        raise refusal(path) from error


def _video_stream(container: av.container.InputContainer) -> av.VideoStream:
    if container.metadata.get("major_brand") in ("heic", "heix", "mif1", "avif"):
        raise StillImage("The file is a still image, not a video.")
    real = [s for s in container.streams.video if not s.disposition & (_COVER_ART | _IMAGE_TILE)]
    if not real:
        found = "cover art" if container.streams.video else "no picture at all"
        raise NoVideoStream(f"The file has no video stream: {found}, {_sound(container)}.")
    best = container.streams.best("video")
    stream = best if best in real else real[0]
    if stream.codec_context is None:
        raise UnreadableVideo("The video stream is in a codec that is not known here.")
    if "enc_key_id" in stream.metadata:  # WebM
        raise _encrypted()
    return stream


def _encrypted() -> UnreadableVideo:
    return UnreadableVideo("The video is encrypted, and there is no key to it here.")


def _sound(container: av.container.InputContainer) -> str:
    return "only sound" if container.streams.audio else "and no sound"


def _info(
    container: av.container.InputContainer,
    stream: av.VideoStream,
    first: av.VideoFrame,
    sar: Fraction | None,
) -> VideoInfo:
    turned = orientation(first)
    height, width = shown_size(first.width, first.height, sar, turned)
    duration_seconds = None
    if stream.duration and stream.time_base:
        duration_seconds = float(stream.duration * stream.time_base)
    elif container.duration:
        duration_seconds = container.duration / av.time_base
    return VideoInfo(
        container=container.format.name,
        codec=stream.codec_context.name,
        width=width,
        height=height,
        coded_width=first.width,
        coded_height=first.height,
        rotation_degrees=turned.rotation_degrees,
        pixel_format=first.format.name,
        average_fps=float(stream.average_rate) if stream.average_rate else None,
        duration_seconds_from_header=duration_seconds,
        start_seconds_from_header=float((first.pts or 0) * (stream.time_base or 0)),
    )
