"""multipart/form-data as it arrives: the field `video` goes to the spool, `path` is kept."""

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.spool import Spool
from deployments.errors import AmbiguousSource, InvalidRequest, MissingSource

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks  # no name at run time

MAX_PARTS = 8
MAX_HEADER_BYTES = 8 * 2**10
MAX_PATH_BYTES = 4096  # Linux's PATH_MAX
MAX_NAME_CHARACTERS = 200


def clean_name(name: str) -> str:
    """A file name to show, never to open: no directories, no control or invisible characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    shown = "".join(c for c in last if not unicodedata.category(c).startswith("C"))
    return shown.strip()[:MAX_NAME_CHARACTERS]


class Form:
    """What a form has said so far. The parser's callbacks cannot wait, so they only `add`."""

    def __init__(self, content_type: str, spool: Spool) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise InvalidRequest("The Content-Type of the form has no boundary.")
        self.path: bytearray | None = None
        self.name: str | None = None
        self._spool = spool
        self._unknown: list[str] = []
        self._num_parts = 0
        self._is_complete = False
        self._take: Callable[[bytes], None] = _ignore
        self._parser = _parser(boundary, self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"The form is not well-formed: {error}.") from error

    def finish(self) -> None:
        """The body has ended: is it whole, and does it name one source?"""
        if not self._is_complete:
            raise InvalidRequest("The form breaks off: its closing boundary is missing.")
        if self.path is None and self.name is None:
            raise MissingSource(
                f"The form has neither a file `video` nor a field `path`{self._what_else()}."
            )
        if self._unknown:
            raise InvalidRequest(
                f"The form may have `video` or `path` and nothing else{self._what_else()};"
                " start_seconds and end_seconds are query parameters."
            )

    def begin_part(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise InvalidRequest(f"The form has more than {MAX_PARTS} parts.")
        self._header = bytearray()
        self._disposition = b""
        self._field_name = bytearray()

    def add_field_name(self, data: bytes, start: int, end: int) -> None:
        _extend(self._field_name, data[start:end], MAX_HEADER_BYTES)

    def add_header(self, data: bytes, start: int, end: int) -> None:
        _extend(self._header, data[start:end], MAX_HEADER_BYTES)

    def end_header(self) -> None:
        if self._field_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header)
        self._field_name.clear()
        self._header.clear()

    def begin_data(self) -> None:
        options = parse_options_header(self._disposition)[1]
        field = options.get(b"name", b"").decode(errors="replace")
        filename = options.get(b"filename")
        if field == "video":
            self._begin_video((filename or b"").decode(errors="replace"))
        elif filename is not None:
            raise MissingSource(
                f"The form has a file in the field {_short(field)}; the video goes into `video`."
            )
        elif field == "path":
            self._begin_path()
        else:
            self._unknown.append(field)
            self._take = _ignore

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self._take(data[start:end])

    def complete(self) -> None:
        self._is_complete = True

    def _begin_video(self, filename: str) -> None:
        if self.name is not None:
            raise InvalidRequest("The form has two files; a request takes one video.")
        self.name = clean_name(filename)
        self._refuse_both()
        self._take = self._spool.add

    def _begin_path(self) -> None:
        if self.path is not None:
            raise InvalidRequest("The form has two paths; a request takes one video.")
        path = self.path = bytearray()
        self._refuse_both()
        self._take = lambda data: _extend(path, data, MAX_PATH_BYTES)

    def _refuse_both(self) -> None:
        if self.path is not None and self.name is not None:
            raise AmbiguousSource(
                "The form has both a file `video` and a `path`; send one of them."
            )

    def _what_else(self) -> str:
        return f", but it has {', '.join(map(_short, self._unknown))}" if self._unknown else ""


def _parser(boundary: bytes, form: Form) -> MultipartParser:
    callbacks: MultipartCallbacks = {
        "on_part_begin": form.begin_part,
        "on_header_field": form.add_field_name,
        "on_header_value": form.add_header,
        "on_header_end": form.end_header,
        "on_headers_finished": form.begin_data,
        "on_part_data": form.add_data,
        "on_end": form.complete,
    }
    try:
        return MultipartParser(boundary, callbacks)
    except FormParserError as error:
        raise InvalidRequest(f"The form is not well-formed: {error}.") from error


def _extend(kept: bytearray, data: bytes, limit_bytes: int) -> None:
    if len(kept) + len(data) > limit_bytes:
        raise InvalidRequest(f"A header or the path in the form is over {limit_bytes:,} bytes.")
    kept += data


def _ignore(data: bytes) -> None:
    pass


def _short(name: str) -> str:
    return f"`{clean_name(name)[:40]}`"
