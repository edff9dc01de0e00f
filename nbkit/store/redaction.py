"""Secrets in files that others may read, found by name, form or place.

A run's folder is readable for others as a rule, and a bundle goes to other machines. So
whatever nbkit itself writes there passes here first. What a rank needs with its secrets
is in files that only their owner can read (`RunPaths.private`).

Known are values with the name of a secret, tokens of the form of five services, private
keys, and passwords in a URL. A password in the middle of a sentence is not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
_PASSWORD = r"(?:[a-z0-9]*passw(?:or)?d|passphrase|secret|credentials?|pgpass)"
_TOKEN = (
    r"(?:token|cookie|jwt|dsn|(?<=[a-z]_)pat"
    r"|(?-i:(?<=[A-Z0-9]_)KEY)|(?:api|access|secret|private|account)[_-]?key)"
)
# People choose short passwords; what a machine makes is long: `token=gpt2` is none, nor
# is a number of up to six digits.
_LONG = (
    r"(?!\d{1,6}(?:[\s\"'&;,)\]}/]|$))"
    r"(?:\"[^\"\n]{7}|'[^'\n]{7}|[^\s\"'&;,)\]}]{7})"
)
_BEFORE = r"(?<![a-z0-9])(?:[a-z0-9]+[_-]){0,8}"
# A variable that is named, a call, a mark and a constant are not secrets.
_VALUE = (
    r"(?![\"']?(?:[$<\[{]|\*\*\*))(?![\w.]*[(\[{])"
    r"(?!(?:none|true|false|null|on|off|yes|no)(?![\w.]))"
    r"(?:\"[^\"\n]+\"|'[^'\n]+'|[^\s\"'&;,)\]}]+)"
)
_ASSIGNED = re.compile(
    rf"({_BEFORE}(?:{_PASSWORD}[\"']?\s*[=:]\s*|{_TOKEN}[\"']?\s*[=:]\s*(?={_LONG})"
    # `forward_pass: 12 ms` and `signature: expected 3` are none.
    r"|(?<=[a-z]_)(?:pass|pwd)[\"']?\s*(?:=\s*|:\s*(?=[\"']|(?=\S*\d)(?=\S*[a-z])\S{8}))"
    rf"|(?:sig|signature|auth)[\"']?\s*(?:=\s*(?={_LONG})|:\s*(?=[\"']\S{{7}})))"
    rf"|(?<!\S)--?(?:[a-z0-9]+[_-]){{0,8}}(?:{_PASSWORD}|{_TOKEN})\s+)({_VALUE})",
    re.IGNORECASE,
)
# In code a name without quotes is a name: only what looks like no word counts.
_LITERAL = re.compile(r"[\"']|(?=\S*\d)[\w+/=-]{8,}$")
_BEARER = re.compile(r"(\b(?:bearer|basic) +)(?!\*\*\*)[\w.~+/=-]{8,}", re.IGNORECASE)
# Hugging Face, GitHub, GitLab, AWS, Google, Slack, NVIDIA, JWT, OpenAI's form.
_FORM = re.compile(
    r"(?<![a-z0-9])(?:hf_[a-z0-9]{16,}|(?:gh[pousr]|github_pat)_\w{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|nvapi-[\w-]{20,}|xox[abeprs]-[\w-]{10,}"
    r"|AIza[\w-]{35}|glpat-[\w-]{16,}|eyJ[\w-]{8,512}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|sk-(?:(?:proj|ant|or|svcacct|admin)-[\w-]{16,}|[a-z0-9]{20,}))",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL
)
# A password that a variable or a template will bring is none yet.
_IN_URL = re.compile(
    r"(?<=//)(?:[^\s/\"'<>@:]*:(?![${*])[^\s/\"'<>]*|(?:(?<=https://)|(?<=http://))"
    r"(?![${*])[^\s/\"'<>@:]+)(?=@)",
    re.IGNORECASE,
)
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
        return {name: _redacted_named(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        is_command = all(isinstance(item, str) for item in value)
        shown = redacted_argv(value) if is_command else [*map(redacted, value)]
        return tuple(shown) if isinstance(value, tuple) else shown
    return value


def redacted_argv(argv: Sequence[str]) -> list[str]:
    """Return the arguments of a command with `REDACTED` in the places of secrets."""
    shown: list[str] = []
    is_value = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if is_value and not is_option:
            shown.append(REDACTED)
        elif equals and re.fullmatch(r"[\w.+~-]+", name) and is_secret_name(name):
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(_redacted_text(argument))
        is_value = is_option and not equals and is_secret_name(name)
    return shown


def refuse_secret_variables(environment: Mapping[str, str]) -> None:
    """Raise if variables that are to be kept look like secrets."""
    for name, value in environment.items():
        is_named = is_secret_name(name) and not _FLAG.fullmatch(value)
        if is_named or redacted(value) != value:
            message = (
                f"environment[{name!r}] looks like a secret, which must not be written "
                "to a run folder. Set it in os.environ before the launch; the ranks "
                "inherit it."
            )
            raise ConfigError(message)


def refuse_secrets(values: Mapping[str, Any], place: str = "") -> None:
    """Raise if what is to be written for others to read holds a secret."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            refuse_secrets(value, f"{place}{name}.")
            continue
        shown = _redacted_named(name, value)
        if shown != value:
            message = (
                f"{place}{name}={shown!r} looks like a secret, which other users could "
                "read. Set an environment variable before the launch instead; the "
                "ranks inherit it."
            )
            raise ConfigError(message)


def may_hold_secret(text: str) -> bool:
    """Return whether code, a diff or printed text seems to hold a secret."""
    forms = (_FORM, _IN_URL, _BEARER, _PRIVATE_KEY)
    return any(form.search(text) for form in forms) or any(
        _LITERAL.match(match[2]) for match in _ASSIGNED.finditer(text)
    )


def _redacted_text(text: str) -> str:
    for form in (_IN_URL, _FORM):
        text = form.sub(REDACTED, text)
    text = _PRIVATE_KEY.sub(rf"\1 {REDACTED} ", text)
    for named in (_BEARER, _ASSIGNED):
        text = named.sub(rf"\1{REDACTED}", text)
    return text


def _redacted_named(name: Any, value: Any) -> Any:
    """Return a value that has a name: of a tag, field or parameter."""
    is_named = isinstance(value, str) and isinstance(name, str) and is_secret_name(name)
    return REDACTED if is_named and value else redacted(value)
