"""Takes secrets out of texts before anybody shows them: the one place that knows what secrets look like.

Texts of others may hold anything, such as our own request. What is masked: the secrets that the caller knows
(``without``); user and password of a URL and its query, what follows ``Bearer`` and ``Basic``, values that are called
a token or the like, and JSON Web Tokens (``without_secrets``). In time linear in the text, whatever it is.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
_SHORTEST_KNOWN = 4
"""Shorter ones hide nothing, and would garble every text."""

_URL = re.compile(r"//[^\s\"'<>]*")
_WHOLE_URL = re.compile(r"\s*(?:[\w+.-]+:)?//")
_HARMLESS_QUERY = re.compile(r"timeout=\w+[.:,;)]*")
"""The API server names webhooks with it."""
_WHOLE_USER = re.compile(r"\A\s*[^\s/@:(]+:[^\s@]+@(?=\S+\s*\Z)")
"""Of an address without a scheme."""
_CREDENTIALS = re.compile(
    r"(?i)\b(bearer|basic)(?:\s|%20)+(?!(?:auth\w*|tokens?|credentials?|realm)\b)[^\s\"'<>&,;]+"
)
_NAMED = re.compile(
    r"(?i)((?:token|passw(?:or)?d|secret|api[_-]?key|access[_-]?key|signature|authorization)[\w.-]{0,20}"
    r"(?:=|\\?\"\s*:\s*\\?\"))(?!(?:bearer|basic) \*\*\*)[^\s\"'<>&,;\\]+"
)
_JSON_WEB_TOKEN = re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?")
_SCHEMES = frozenset({"bearer", "basic"})


def without_secrets(text: str) -> str:
    """The text with ``***`` in place of whatever looks like a secret."""
    if _WHOLE_URL.match(text):  # its password may have spaces in it
        text = _without_user_and_query(text)
    else:
        text = _WHOLE_USER.sub(f"{MASK}@", text)
        text = _URL.sub(lambda url: _without_user_and_query(url[0]), text)
    text = _CREDENTIALS.sub(rf"\1 {MASK}", text)
    return _JSON_WEB_TOKEN.sub(MASK, _NAMED.sub(rf"\1{MASK}", text))


def without(known: Iterable[str], text: str) -> str:
    """The text without these headers' values, in plain, within JSON and within a URL.

    Each as a whole and word by word, since whoever repeats a value may break it anywhere; but the name of a scheme
    (``Bearer``) says nothing.
    """
    parts = {part for value in known for part in (value, *value.split()) if part.lower() not in _SCHEMES}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SHORTEST_KNOWN:
            for form in (part, part.replace("/", "\\/"), quote(part, safe="")):
                text = text.replace(form, MASK)
    return text


def _without_user_and_query(url: str) -> str:
    before, slashes, rest = url.partition("//")
    _, at, host = rest.rpartition("@")  # a password may hold a slash
    place, mark, query = (f"{MASK}@{host}" if at else rest).partition("?")
    shown = f"{place}?{MASK}" if query and not _HARMLESS_QUERY.fullmatch(query) else f"{place}{mark}{query}"
    return f"{before}{slashes}{shown}"
