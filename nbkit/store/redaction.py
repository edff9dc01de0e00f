"""Secrets in what others may read: known by their names, their forms or their places.

A run's folder is readable for others as a rule, and a bundle goes to other machines. So
whatever nbkit itself writes there passes here first. What a rank needs with its secrets
is in files that only their owner can read (`RunPaths.private`).

This finds what is written in the usual ways. It cannot know a password in the middle of
a sentence, or one that was encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nbkit.errors import ConfigError

REDACTED = "***"
"""What replaces a secret."""

# Names of variables and options. Plural tokens, and what makes them, are text's.
_NAME = re.compile(
    r"TOKEN(?!I[SZ]|S)|(?<!MON)KEY(?!BOARD|FRAME|POINT|WORD|S[_-]PER(?![A-Z]))|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR|[_-]?FILE)"
    r"|COOKIE|JWT|(?<!BY)(?<!COM)PASS(?![A-Z])|(?<!OLD)(?<=.)PWD(?![A-Z])"
    r"|(?<![A-Z])(PAT|DSN)(?![A-Z])",
    re.IGNORECASE,
)

# As a word's end in free text, where `key=len` and `KeyError: 'x'` are not secrets.
_PASSWORD = r"(?:[a-z0-9]*passw(?:or)?d|passphrase|secret|credentials?)"
_TOKEN = (
    r"(?:token|cookie|jwt|dsn|(?-i:(?<=[A-Z0-9]_)KEY)"
    r"|(?:api|access|secret|private|auth|account|encryption|signing)[_-]?key)"
)
_WORD = rf"(?:{_PASSWORD}|{_TOKEN})"
_PASS = r"(?:(?<=[a-z]_)pass|[a-z]{0,20}pgpass|(?<=;)pwd|pwd(?!\s*=\s*[\"']?[/~.$]))"
_SIGNATURE = r"(?:(?<=[a-z]_)pat|sig|signature|auth|pass)"
# People choose short passwords; what a machine makes is long: `token=gpt2` is none, nor
# is a number of up to six digits.
_LONG = (
    r"(?!\d{1,6}(?:[\s\"'&;,)\]}/]|$))"
    r"(?:\"[^\"\n]{7}|'[^'\n]{7}|[^\s\"'&;,)\]}]{7})"
)
_BEFORE = r"(?<![a-z0-9])(?:[a-z0-9]+[_-]){0,8}"
_QUOTED = r"\"[^\"\n]+\"|'[^'\n]+'"
# A variable that is named, a call, a mark and a constant are not secrets.
_NO_VALUE = (
    r"(?![\"']?(?:[$<\[{]|\*\*\*))(?![\w.]*[(\[{])"
    r"(?!(?:none|true|false|null|on|off|yes|no)(?![\w.]))"
)
_VALUE = rf"{_NO_VALUE}(?:{_QUOTED}|[^\s\"'&;,)\]}}]+)"

_FORMS = [
    r"hf_[a-z0-9]{16,}",
    r"gh[pousr]_[a-z0-9]{16,}",
    r"github_pat_\w{16,}",
    r"gl(?:pat|dt|rt)-[\w-]{16,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"sk-(?:proj|ant|or|svcacct|admin)-[\w-]{16,}",
    r"sk-[a-z0-9]{20,}",
    r"[rs]k_(?:live|test)_[a-z0-9]{16,}",
    r"xox[abeprs]-[\w-]{10,}",
    r"AIza[\w-]{35}",
    r"npm_[a-z0-9]{30,}",
    r"pypi-[\w-]{20,}",
    r"nvapi-[\w-]{20,}",
    r"ya29\.[\w-]{20,}",
    r"dop_v1_[a-f0-9]{32,}",
    r"rpa_[a-z0-9]{20,}",
    r"(?<=[?&]key=)[\w-]{16,}",
    r"eyJ[\w-]{8,512}\.[\w-]{8,}(?:\.[\w-]*)?",
]
_FORM = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(_FORMS)})", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL
)
# A password that a variable or a template will bring is none yet.
_IN_URL = re.compile(
    r"(?<=//)(?:[^\s/\"'<>@:]*:(?![${*])[^\s/\"'<>]*|(?:(?<=https://)|(?<=http://))"
    r"(?![${*])[^\s/\"'<>@:]+)(?=@)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\b(?:bearer|basic) +)(?!\*\*\*)[\w.~+/=-]{8,}", re.IGNORECASE)
# In text a colon after some names says nothing.
_ASSIGNED = re.compile(
    rf"({_BEFORE}(?:(?:{_PASSWORD}[\"']?\s*[=:]|{_PASS}[\"']?\s*=)\s*"
    rf"|(?:{_TOKEN}[\"']?\s*[=:]|{_SIGNATURE}[\"']?\s*=)\s*(?={_LONG})"
    rf"|(?<=-){_WORD}\s+)"
    rf"|(?<!\S)--?(?:[a-z0-9]+[_-]){{0,8}}(?:{_WORD}|pw)\s+)({_VALUE})",
    re.IGNORECASE,
)
# curl's and wget's; numbers are a user and group of docker's.
_USER = re.compile(r"((?<!\S)(?:-u|--user)[ =][^\s:/]{1,64}:)(?!\d+\b|\*\*\*)[^\s:/]+")
_KEY = re.compile(rf"{_BEFORE}(?:{_WORD}|{_PASS}|{_SIGNATURE})", re.IGNORECASE)
# In code a name without quotes is a name: only what looks like no word counts.
_IN_CODE = re.compile(
    rf"{_BEFORE}(?:(?:{_PASSWORD}|{_PASS})[\"']?\s*[=:]\s*"
    rf"|(?:{_TOKEN}|{_SIGNATURE})[\"']?\s*[=:]\s*(?={_LONG})){_NO_VALUE}"
    rf"(?:{_QUOTED}|(?=\S*\d)[\w+/=-]{{8,}}(?![\w.(\[]))",
    re.IGNORECASE,
)

_IN_SOURCES = (
    *(_FORM, _IN_URL, _BEARER, _IN_CODE),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
)


_LONGEST_LINE = 4096
_FLAG = re.compile(r"(?:|[01]|true|false|yes|no|on|off)", re.IGNORECASE)
"""Values of variables such as ``HF_HUB_DISABLE_IMPLICIT_TOKEN``."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable or option of this name holds a secret as a rule."""
    return _NAME.search(name) is not None


def redacted(value: Any) -> Any:
    """Return a value of JSON with `REDACTED` in the places of secrets."""
    if isinstance(value, str):
        return _redacted_text(value)
    if isinstance(value, Mapping):
        return {key: _redacted_item(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if all(isinstance(item, str) for item in value):
            return redacted_argv(value)  # it may be a command
        return [redacted(item) for item in value]
    return value


def redacted_argv(argv: Sequence[str]) -> list[str]:
    """Return the arguments of a command with `REDACTED` in the places of secrets.

    ``--token x``, ``--token=x`` and ``app.token=x`` count, whatever the value.
    """
    found: list[str] = []
    is_value = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if is_value and not is_option:
            found.append(REDACTED)
        elif equals and re.fullmatch(r"[\w.+~-]+", name) and is_secret_name(name):
            found.append(f"{name}={REDACTED}")
        else:
            found.append(_redacted_text(argument))
        is_value = is_option and not equals and is_secret_name(name)
    return found


def redacted_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags with `REDACTED` instead of secrets, found by their names too."""
    return {name: _redacted_named(name, value) for name, value in tags.items()}


def refuse_secret_variables(environment: Mapping[str, str]) -> None:
    """Raise if variables that are to be kept look like secrets."""
    for name, value in environment.items():
        is_named = is_secret_name(name) and not _FLAG.fullmatch(value)
        if is_named or redacted(value) != value:
            message = (
                f"environment[{name!r}] looks like a secret, which is never written "
                "into a run's folder; set it in os.environ before the launch: the "
                "ranks inherit it."
            )
            raise ConfigError(message)


def refuse_secrets(values: Mapping[str, Any]) -> None:
    """Raise if what is to be written for others to read holds a secret."""
    for place, text, shown in _found(values, ""):
        if text != shown:
            message = (
                f"{place}={shown!r} looks like a secret, and it would be written where "
                "others may read it; set an environment variable before the launch, "
                "which the ranks inherit, and use that one instead."
            )
            raise ConfigError(message)


def secret_lines(text: str) -> list[int]:
    """Return the numbers of the lines of code that seem to hold a secret, from 1.

    Of a very long line, only the beginning is searched.
    """
    return [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if any(one.search(line, 0, _LONGEST_LINE) for one in _IN_SOURCES)
    ]


def _redacted_text(text: str) -> str:
    text = _IN_URL.sub(REDACTED, text)
    text = _FORM.sub(REDACTED, text)
    text = _PRIVATE_KEY.sub(rf"\1 {REDACTED} ", text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    text = _USER.sub(rf"\1{REDACTED}", text)
    return _ASSIGNED.sub(rf"\1{REDACTED}", text)


def _redacted_item(key: Any, item: Any) -> Any:
    is_named = isinstance(item, str) and isinstance(key, str) and _KEY.fullmatch(key)
    return REDACTED if is_named and item else redacted(item)


def _redacted_named(name: str, text: str) -> str:
    """Return a text that has a name: of a tag, field or parameter."""
    return REDACTED if text and is_secret_name(name) else _redacted_item(name, text)


def _found(value: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Yield place, text and redacted text of every text in a value."""
    if isinstance(value, str):
        yield place, value, redacted(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            below = f"{place}.{key}" if place else str(key)
            if isinstance(item, str):
                yield below, item, _redacted_named(key, item)
            else:
                yield from _found(item, below)
    elif isinstance(value, list | tuple):
        shown = redacted(value)
        for number, item in enumerate(value):
            if isinstance(item, str):
                yield f"{place}[{number}]", item, shown[number]
            else:
                yield from _found(item, f"{place}[{number}]")
