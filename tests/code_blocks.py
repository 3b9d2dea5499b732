"""Blocks of code in pages and docstrings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and text of every block of code. That of one that is indented, and not fenced, is "indented"."""
    for language, fenced in re.findall(r"^ *```(\S*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        yield language, textwrap.dedent(fenced)
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    for indented in re.findall(r"(?:\A|(?<=\n\n))((?: {4}.*\n)+)", prose):
        yield "indented", textwrap.dedent(indented)
