"""answers: what a page answers, as values. Pure.

Here: the types. Not here: serving them (pages.py), what they say.
Invariant: a page is made from what is known already: quick, without I/O.
"""

from collections.abc import Callable
from typing import Final

Headers = tuple[tuple[str, str], ...]

Answer = tuple[int, str, bytes] | tuple[int, str, bytes, Headers]
"""Status, content type, body, and maybe more headers."""

Page = Callable[[], Answer]
"""Makes an answer."""

SERVER: Final = "podgate"
"""Who answers, as each answer says (RFC 9110, 10.2.4): our own pages are known by it."""

TEXT: Final = "text/plain; charset=utf-8"
"""The content type of a page for people."""
