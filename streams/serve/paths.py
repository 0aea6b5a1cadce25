"""`any_text`: the rest of a path, as a route of Starlette has it. Importing this module makes routes know it."""

from __future__ import annotations

from starlette.convertors import PathConvertor, register_url_convertor


class _AnyText(PathConvertor):
    """Also with slashes and newlines, which keys may have."""

    regex = "(?s:.*)"


register_url_convertor("any_text", _AnyText())
