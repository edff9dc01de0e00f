"""The base of every configuration: frozen, strict, with clear errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from nbkit.config.documented import descriptions, documentation, short_signature
from nbkit.errors import ConfigError
from nbkit.reading import parse_object
from nbkit.registry import suggest

reads_store: ContextVar[bool] = ContextVar("reads_store", default=False)
"""Whether names that are not registered here are accepted."""

_LISTED = 32
"""Fields that an error about an unknown one lists."""


class _Documented(type(BaseModel)):
    @property
    def __doc__(cls) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The class's documentation, made when ``help()`` or ``?`` asks."""
        return documentation(cast("type[BaseModel]", cls))


class Model(BaseModel, metaclass=_Documented):
    """Base of every nbkit configuration: frozen, strict about names."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Let completion know every field."""
        cls.__signature__ = short_signature(cls)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            fields[name]["description"] = text
        return schema

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield what a call has to say to make the same: what is not the default."""
        fields = type(self).model_fields
        for name in fields:
            value = getattr(self, name)
            default = fields[name].get_default(call_default_factory=True)
            if name in self.model_fields_set and value != default:
                yield name, value

    def __str__(self) -> str:
        return repr(self)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            fields = list(type(self).model_fields)
            lines: dict[str, str] = {}
            for detail in error.errors(include_url=False):
                for path, line in _lines(detail, fields).items():
                    # A union reports each of its members: the first, and its names.
                    allowed = detail.get("ctx", {}).get("expected")
                    if path in lines and allowed:
                        lines[path] = f"{lines[path][:-1]}, or {allowed}."
                    lines.setdefault(path, line)
            raise ConfigError("\n".join(lines.values()), lines) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the configuration that `to_json` wrote."""
        return cls(**json.loads(text))

    @classmethod
    def from_store(cls, text: str | bytes) -> Self:
        """Return a run's configuration as it was launched.

        The plug-ins that it uses need not be installed.
        """
        before = reads_store.set(True)
        try:
            return cls(**parse_object(text.encode() if isinstance(text, str) else text))
        finally:
            reads_store.reset(before)

    def to_json(self) -> str:
        """Return every field, defaults included, as indented JSON."""
        return self.model_dump_json(indent=1)


def _lines(error: Any, fields: list[str]) -> dict[str, str]:
    """Return the lines of one pydantic error, by the paths of their fields."""
    first = ".".join(map(str, error["loc"][:1]))
    inside = error.get("ctx", {}).get("error")
    if isinstance(inside, ConfigError) and inside.fields:
        # A configuration inside this one has said what is wrong with its fields.
        return {
            f"{first}.{path}": f"{first}.{text}" for path, text in inside.fields.items()
        }
    return {first: _sentence(error, fields)}


# What torchrun, Slurm and other launchers call it.
_OTHER_NAMES = {
    **dict.fromkeys(("nproc_per_node", "num_processes", "num_gpus", "ngpus"), "gpus"),
    **dict.fromkeys(("num_nodes", "nodes"), "nnodes"),
    **dict.fromkeys(("env", "envs", "env_vars"), "environment"),
    "lr": "learning_rate",
}


def _sentence(error: Any, fields: list[str]) -> str:
    """Return one line for one pydantic error: value, limit, what to do."""
    where = ".".join(str(part) for part in error["loc"] if part in fields) or ".".join(
        str(part) for part in error["loc"]
    )
    context = error.get("ctx", {})
    value = repr(error.get("input"))
    value = value if len(value) <= 80 else value[:77] + "..."
    kind = error["type"]
    if kind == "extra_forbidden":
        near = suggest(where, fields)
        if where in _OTHER_NAMES:
            near = f" Did you mean {_OTHER_NAMES[where]!r}?"
        # A long list would hide the one name that is meant.
        listed = f" Known: {', '.join(fields)}." if len(fields) <= _LISTED else ""
        return f"{where}={value} is not a field.{near + listed or ' Remove it.'}"
    texts = {
        "greater_than_equal": "is below {ge}. Use {ge} or more.",
        "greater_than": "is not above {gt}. Use a value above {gt}.",
        "less_than_equal": "is above {le}. Use {le} or less.",
        "less_than": "is not below {lt}. Use a value below {lt}.",
        "int_parsing": "is not a whole number. Use an integer.",
        "int_type": "is not a whole number. Use an integer.",
        "int_from_float": "is not a whole number. Use an integer.",
        "float_parsing": "is not a number. Use a number.",
        "finite_number": "is not finite. Use a finite number.",
        "bool_parsing": "is not a boolean. Use True or False.",
        "literal_error": "is unknown. Use {expected}.",
        "value_error": "{error}.",
    }
    template = texts.get(kind, "")
    text = template.format(**context) if template else error["msg"] + "."
    return f"{where}={value}: {text}".replace("?.", "?").replace(". .", ".")
