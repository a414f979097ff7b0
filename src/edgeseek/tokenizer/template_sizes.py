"""How large the result of a Jinja filter or string method can be, told from its arguments.

Only operations that can turn a small input into a large result, or that take quadratic time, are
listed; all others are covered by the sandbox's weighing of arguments. Functions take what the
template passes and return characters or items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from jinja2.exceptions import SecurityError

_PRINTF = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?")
_LARGEST_EXPONENT = 300
#: Input of 64 Ki characters to a quadratic operation counts as 4 Mi.
_QUADRATIC_DIVISOR = 1024
#: What an item of a list costs, against a character of a string.
ITEM_SIZE = 16


def printf_size(text: Any, arguments_weight: int) -> int:
    """Upper bound of `text % arguments`; widths taken from the arguments are refused."""
    size = len(str(text))
    for width, precision in _PRINTF.findall(str(text)):
        if "*" in (width, precision):
            raise SecurityError("it uses '*' as a width in a % format")
        size += arguments_weight + int(width or 0) + int(precision or 0)
    return size


def replaced_size(text: Any, old: Any, new: Any, count: Any = None) -> int:
    """Upper bound of `text.replace(old, new)`."""
    del count  # fewer replacements only make it shorter
    haystack = str(text)
    return len(haystack) + haystack.count(str(old)) * len(str(new))


def _width(text: Any, width: int = 80, *fill: Any) -> int:
    del fill
    return len(str(text)) + width


def _indent(text: Any, width: Any = 4, *flags: Any, **named_flags: Any) -> int:
    del flags, named_flags
    return str(text).count("\n") * (len(width) if isinstance(width, str) else width) + len(str(text))


def _count(value: Any, count: int, *fill: Any, **named_fill: Any) -> int:
    del value, fill, named_fill
    return count


def _round(value: Any, precision: int = 0, method: str = "common") -> int:
    del value, method
    if abs(precision) > _LARGEST_EXPONENT:
        raise SecurityError(f"it rounds to {precision} digits")
    return 1


def _sum(iterable: Any, attribute: Any = None, start: Any = 0) -> int:
    del iterable, attribute
    if not isinstance(start, (int, float)):
        raise SecurityError("it uses the filter sum on something other than numbers")
    return 1


def _quadratic(text: Any, *options: Any, **named_options: Any) -> int:
    del options, named_options
    return len(str(text)) ** 2 // _QUADRATIC_DIVISOR


def _items(value: Any, *options: Any) -> int:
    """A list of a string's characters, or of the words that `title` makes on its way."""
    del options
    return len(value) * ITEM_SIZE if isinstance(value, str) else 1


def _expanded_tabs(text: str, tabsize: int = 8) -> int:
    return len(text) + text.count("\t") * tabsize


SizeOf = Callable[..., int]

FILTER_SIZES: Mapping[str, SizeOf] = MappingProxyType(
    {
        "batch": _count,
        "center": _width,
        "indent": _indent,
        "list": _items,
        "pprint": _quadratic,
        "replace": replaced_size,
        "round": _round,
        "slice": _count,
        "striptags": _quadratic,
        "sum": _sum,
        "title": _items,
        "urlize": _quadratic,
        "wordwrap": _quadratic,
        "xmlattr": _quadratic,
    }
)

#: Methods of str; the first argument is the string itself.
METHOD_SIZES: Mapping[str, SizeOf] = MappingProxyType(
    {
        "center": _width,
        "expandtabs": _expanded_tabs,
        "ljust": _width,
        "replace": replaced_size,
        "rjust": _width,
        "title": _items,
        "zfill": _width,
    }
)
