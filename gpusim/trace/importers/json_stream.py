"""JSON read piece by piece: the members of one object, and the elements of one of its arrays, never the whole file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from gpusim.base.errors import TraceError

_CHUNK = 1 << 20
_LARGEST = 16 << 20  # characters of one value
_LONGEST_WORD = 8  # characters before the window's end within which a fault may only be that the rest is missing
_SPACE = re.compile(r"[ \t\r\n]*")
_CUT = "is the file cut short?"


class JsonStream:
    """Iterates over (key, value) of the members of the file's object; of the member `array`, over its elements.

    A file that is an array instead is taken for that member.  Raises TraceError with the line of the fault.
    """

    def __init__(self, file: BinaryIO, path: str, array: str) -> None:
        self._file, self._path, self._array = file, path, array
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._scan = json.JSONDecoder().raw_decode
        # A window on the file's characters that moves forward, and the lines before it.
        self._buffer, self._at, self._lines, self._ended = "", 0, 0, False

    @property
    def where(self) -> str:
        """ "file:line" where the latest value ends."""
        return self._where(self._at)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        first = self._peek()
        if first == "[":
            yield from self._elements()
        elif first == "{":
            self._take("{")
            while self._peek() != "}":
                key = self._value()
                if not isinstance(key, str):
                    self._fail("a name is missing")
                self._take(":")
                if key == self._array and self._peek() == "[":
                    yield from self._elements()
                else:
                    yield key, self._value()
                if not self._comma("}"):
                    break
            self._take("}")
        else:
            self._fail("this is not JSON")
        if self._peek():
            self._fail("more follows the end of the JSON", "were two files joined? import them one by one")

    def _peek(self) -> str:
        """The next character that is not blank, "" at the end."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            assert found is not None  # it matches the empty string
            self._at = found.end()
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _take(self, mark: str) -> None:
        found = self._peek()
        if found != mark:
            self._fail(f"'{mark}' is missing" if found else "the JSON ends early", "" if found else _CUT)
        self._at += 1

    def _comma(self, end: str) -> bool:
        """Whether another value follows; else `end` must."""
        found = self._peek()
        if found == ",":
            self._at += 1
            return True
        if found != end:
            self._fail(f"',' or '{end}' is missing" if found else "the JSON ends early", "" if found else _CUT)
        return False

    def _value(self) -> Any:
        """The next value, whole."""
        self._peek()
        while True:
            try:
                found, end = self._scan(self._buffer, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._buffer) - _LONGEST_WORD
                if not cut or len(self._buffer) - self._at > _LARGEST:
                    self._fail(f"this is not JSON: {error.msg}", at=error.pos)
                if not self._more():
                    self._fail("the JSON ends early", _CUT, at=len(self._buffer))
                continue
            except ValueError:  # of a whole number, which Python reads no further
                self._fail("a number has more than 4,300 digits", "is the file damaged?")
            except RecursionError:
                self._fail("the JSON is nested too deeply")
            if end + _LONGEST_WORD < len(self._buffer) or self._ended:
                self._at = end
                return found
            self._more()  # a number near the window's end may go on: read it again

    def _elements(self) -> Iterator[tuple[str, Any]]:
        """The elements of the array that begins here."""
        self._take("[")
        if self._peek() == "]":
            self._take("]")
            return
        while True:
            yield self._array, self._value()
            if not self._comma("]"):
                break
        self._take("]")

    def _fail(self, message: str, hint: str = "", at: int | None = None) -> NoReturn:
        raise TraceError(message, self._where(self._at if at is None else at), hint)

    def _where(self, at: int) -> str:
        return f"{self._path}:{self._lines + self._buffer.count(chr(10), 0, at) + 1}"

    def _more(self) -> bool:
        """Moves the window on by a chunk; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(_CHUNK)
        self._ended = not data
        self._lines += self._buffer.count("\n", 0, self._at)
        self._buffer, self._at = self._buffer[self._at :] + self._decode(data, final=self._ended), 0
        return not self._ended
