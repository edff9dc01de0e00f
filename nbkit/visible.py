"""Safe display of text that other users may have written.

A terminal obeys control characters: they clear the screen, set its title, or write over
a line. Direction characters let a text be read in another order than it has.
"""

from __future__ import annotations

_CONTROL = (*range(0x20), *range(0x7F, 0xA0))
# Marks, embeddings, overrides and isolates: https://www.unicode.org/reports/tr9/
_DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_AS_BYTES = {code: f"\\x{code - 0xDC00:02x}" for code in range(0xDC80, 0xDCA0)}
"""Control characters in the bytes of a name that is not UTF-8."""

_IN_A_LINE = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*_CONTROL, *_DIRECTION, *_LINE_ENDS)
} | _AS_BYTES
_IN_LINES = {
    code: text for code, text in _IN_A_LINE.items() if code not in (ord("\n"), 9)
}


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with its control and direction characters escaped.

    Examples
    --------
    >>> visible("\x1b[2Jmine")
    '\\x1b[2Jmine'
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_IN_LINES if lines else _IN_A_LINE)


def encodable(text: str, encoding: str | None) -> str:
    """Return a text with what an encoding lacks escaped; None means UTF-8.

    A name on disk is bytes: those that are not UTF-8 are in no encoding.
    """
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
