"""How results and values are written, so that others read the same: ``serializer=`` of ``idempotent``, ``cached`` and ``versioned``.

A result that cannot be written is refused, never lost in silence: before the work is done where the function says what it
returns, else after it, by a :class:`resil.ResultUnrecordedError` to the one who did the work and to every duplicate.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import pickle
import typing
import uuid
from typing import Any, Callable, NamedTuple

from .errors import IdempotencyFailedError, ResultUnrecordedError


class Serializer(NamedTuple):
    """A way to write values. ``form`` is ``json`` (any value that JSON has), ``text`` (JSON of one type), or ``bytes``."""

    form: str
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    #: What ``dumps`` raises for a value that it cannot write. Code of the user's may raise anything; ours does not, so that what a
    #: handler of signals raises meanwhile is not taken for it.
    refusals: tuple[type[Exception], ...] = (Exception,)


def chosen(given: Any) -> Serializer:
    """What ``serializer=`` says."""
    if isinstance(given, str):
        try:
            return _NAMED[given]
        except KeyError:
            raise ValueError(f"serializer must be {', '.join(_NAMED)}, a type, or a pair (dumps, loads), got {given!r}") from None
    if isinstance(given, type) and hasattr(given, "model_validate_json"):
        return _of_model(given)
    if isinstance(given, type) and dataclasses.is_dataclass(given):
        return _of_dataclass(given)
    if hasattr(given, "dump_json") and hasattr(given, "validate_json"):
        return Serializer("text", given.dump_json, given.validate_json)  # a pydantic.TypeAdapter
    if isinstance(given, tuple) and len(given) == 2 and all(map(callable, given)):
        return _of_pair(*given)
    kind = f"the type {given.__name__}" if isinstance(given, type) else type(given).__name__
    raise TypeError(
        f"serializer must be {', '.join(_NAMED)}, a dataclass, a pydantic model, or a pair of functions (dumps, loads), not {kind}"
    )


# --- JSON ---

_ATOMS = frozenset((str, int, float, bool, type(None)))
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError)


def to_json(value: Any) -> bytes:
    """The same bytes as every other language writes: compact, and UTF-8 as it is. What JSON would change is refused."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        written = text.encode()
    except _REFUSALS as error:
        raise TypeError(f"JSON does not have it: {error}") from error
    # Most values are equal to what is read back. Of the others only tuples are let through: they come back as lists.
    if type(value) not in _ATOMS and json.loads(text) != value:
        _refuse_keys(value)
    return written


def _refuse_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, element in value.items():
            if not isinstance(key, str):
                raise TypeError(f"JSON does not have it: the key {key!r} of a dict is no text, and would come back as one")
            _refuse_keys(element)
    elif isinstance(value, (list, tuple)):
        for element in value:
            _refuse_keys(element)


def from_json(text: bytes) -> Any:
    return json.loads(text)


# --- Types ---


def _of_model(model: Any) -> Serializer:
    def dumps(value: Any) -> bytes:
        if value is None:
            return b"null"
        if not isinstance(value, model):
            raise TypeError(f"it must be a {model.__name__} or None, not {type(value).__name__}")
        written: bytes = value.model_dump_json().encode()
        model.model_validate_json(written)
        return written

    def loads(text: bytes) -> Any:
        return None if text == b"null" else model.model_validate_json(text)

    return Serializer("text", dumps, loads)


def _refuse_unresolved(kind: Any, seen: set[type]) -> None:
    """Refuses a dataclass whose hints cannot be resolved: its values could be written, but not be read again."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        try:
            hints = typing.get_type_hints(kind)
        except Exception as error:
            raise TypeError(f"serializer cannot be {kind.__name__}: the types of its fields cannot be resolved: {error}") from error
        for field in dataclasses.fields(kind):
            _refuse_unresolved(hints[field.name], seen)
    for argument in typing.get_args(kind):
        _refuse_unresolved(argument, seen)


def _of_dataclass(kind: type) -> Serializer:
    _refuse_unresolved(kind, set())

    def dumps(value: Any) -> bytes:
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"it must be a {kind.__name__} or None, not {type(value).__name__}")
        written = to_json(_plain(value))
        if loads(written) != value:
            raise TypeError(f"a field of {kind.__name__} would come back as something else: its type has to say what it is")
        return written

    def loads(text: bytes) -> Any:
        return _typed(json.loads(text), typing.Optional[kind])

    return Serializer("text", dumps, loads)


#: What JSON does not have, as text and back.
_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    datetime.datetime: (datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: (datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: (datetime.time.isoformat, datetime.time.fromisoformat),
    decimal.Decimal: (str, decimal.Decimal),
    uuid.UUID: (str, uuid.UUID),
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if type(value) in _TEXTS:
        return _TEXTS[type(value)][0](value)
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(element) for element in value]
    return value


def _typed(plain: Any, hint: Any) -> Any:
    """What JSON has, as the type that a field declares."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if plain is None:
        return None
    if _is_union(hint, origin):
        others = [argument for argument in arguments if argument is not type(None)]
        return _typed(plain, others[0]) if len(others) == 1 else plain
    if origin in (list, tuple) and isinstance(plain, list):
        if origin is list or arguments[1:] == (...,):
            return origin(_typed(element, arguments[0]) for element in plain)
        return tuple(_typed(element, argument) for element, argument in zip(plain, arguments))
    if origin is dict and isinstance(plain, dict):
        return {key: _typed(element, arguments[1]) for key, element in plain.items()}
    if not isinstance(hint, type):
        return plain
    if dataclasses.is_dataclass(hint) and isinstance(plain, dict):
        hints = typing.get_type_hints(hint)
        fields = {field.name: field.init for field in dataclasses.fields(hint)}
        return hint(**{name: _typed(plain[name], hints[name]) for name, is_given in fields.items() if is_given})
    if issubclass(hint, enum.Enum):
        return hint(plain)
    if hint in _TEXTS and isinstance(plain, str):
        return _TEXTS[hint][1](plain)
    return tuple(plain) if hint is tuple and isinstance(plain, list) else plain


def _is_union(hint: Any, origin: Any) -> bool:
    return origin is typing.Union or type(hint).__name__ == "UnionType"


# --- Others ---


def _of_pair(dumps: Callable[[Any], Any], loads: Callable[[bytes], Any]) -> Serializer:
    def written(value: Any) -> bytes:
        made = dumps(value)
        if isinstance(made, str):
            return made.encode()
        if not isinstance(made, (bytes, bytearray, memoryview)):
            raise TypeError(f"dumps must give bytes or text, not {type(made).__name__}")
        return bytes(made)

    return Serializer("bytes", written, loads)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"it must be bytes, not {type(value).__name__}")
    return value


_NAMED = {
    "json": Serializer("json", to_json, from_json, _REFUSALS),
    "bytes": Serializer("bytes", _bytes, bytes, _REFUSALS),
    "pickle": Serializer("bytes", pickle.dumps, pickle.loads),
}


# --- What cannot be kept ---

_NOT_IN_JSON = (
    bytes,
    bytearray,
    complex,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    frozenset,
    set,
    uuid.UUID,
)


def refuse_declared(serializer: Serializer, function: Any) -> None:
    """Refuses a function whose declared result cannot be written, before it has done anything."""
    declared = _declared(function)
    if serializer.form == "json":
        refused = _not_in_json(declared)
    else:
        is_refused = serializer.dumps is _bytes and isinstance(declared, type)
        refused = declared if is_refused and issubclass(declared, (str, int, float, dict, list, tuple)) else None
    if refused is not None:
        name = getattr(refused, "__name__", refused)
        raise TypeError(f"fn returns {name}, which this serializer cannot write: choose another with serializer=")


def _not_in_json(hint: Any) -> Any:
    """What a declared type has in it that JSON does not; None if there is nothing that is known."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal or origin is collections.abc.Callable:
        return None
    if origin is not None:
        arguments = typing.get_args(hint)
        is_mapping = isinstance(origin, type) and issubclass(origin, collections.abc.Mapping) and len(arguments) == 2
        if is_mapping and isinstance(arguments[0], type) and not issubclass(arguments[0], str):
            return hint  # keys come back as text
        found = (_not_in_json(part) for part in (origin, *arguments))
        return next((part for part in found if part is not None), None)
    if not isinstance(hint, type):
        return None
    is_refused = issubclass(hint, _NOT_IN_JSON) or dataclasses.is_dataclass(hint) or hasattr(hint, "model_dump_json")
    is_refused = is_refused or (issubclass(hint, enum.Enum) and not issubclass(hint, (str, int, float)))
    return hint if is_refused else None


def _declared(function: Any) -> Any:
    """What a function says it returns; None if it does not, or if that cannot be found."""
    try:
        declared = function.__annotations__.get("return")
        if isinstance(declared, str):
            declared = eval(declared, function.__globals__)  # what typing.get_type_hints does, of one annotation
    except Exception:
        return None
    return declared


def unrecorded(error: Exception, result: Any) -> ResultUnrecordedError:
    """For the one who did the work, and has its result."""
    made = ResultUnrecordedError(f"the work is done, and its result could not be recorded: {error}. Choose another serializer=")
    made.result = result
    made.__cause__ = error
    return made


# --- Exceptions to remember ---


def recorded(error: BaseException, finals: tuple[type[Exception], ...]) -> bytes:
    """What is kept of an exception, as JSON in the form that all languages share. What JSON does not have is left out."""
    name, message = type(error).__name__, str(error)
    kept: dict[str, Any] = {"name": name, "message": message}
    # Which of the classes it falls under, the nearest first, where its own name does not say so.
    bases = [base.__name__ for base in type(error).__mro__ if base in finals]
    if bases and bases[0] != name:
        kept["bases"] = bases
    if error.args != (message,) and _is_json(list(error.args)):
        kept["args"] = list(error.args)
    # Not a socket, nor a request: those are of one process.
    properties = {name: value for name, value in vars(error).items() if _is_json(value)}
    if properties:
        kept["properties"] = properties
    return to_json(kept)


def _is_json(value: Any) -> bool:
    try:
        to_json(value)
    except TypeError:
        return False
    return True


def revived(written: str, finals: tuple[type[Exception], ...]) -> Exception:
    """The exception again: of the class that is named, or else of the nearest that it fell under, or of the only one there is."""
    kept = json.loads(written)
    known = {kind.__name__: kind for kind in reversed(finals)}
    named = [known[name] for name in (kept["name"], *kept.get("bases", ())) if name in known]
    return again(next(iter(named), finals[0] if len(finals) == 1 else None), kept)


def again(kind: type[Exception] | None, kept: dict[str, Any]) -> Exception:
    """The same exception again. Its class is not asked: what it made of its arguments is here already.

    Without a class (another language recorded it, or a program that remembers others), it is a :class:`resil.IdempotencyFailedError`
    with what is known.
    """
    name, message, code = kept["name"], kept["message"], kept.get("code")
    given, has = tuple(kept.get("args", (message,))), kept.get("properties", {})
    if kind is None:
        return IdempotencyFailedError(f"the work has failed finally, by {name}: {message}", recorded=kept)
    made = _made(kind, given, code, has)
    if made is not None and _says(made) == message:
        return made
    # What it says comes of what was not kept (bytes, fields of a class in C): a subclass says it in its place.
    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__str__": lambda error: message,
        "__reduce__": lambda error: (again, (kind, kept)),
    }
    return _made(type(kind.__name__, (kind,), members), given, code, has) or again(None, kept)


def _made(kind: type[Exception], given: tuple[Any, ...], code: str | None, properties: dict[str, Any]) -> Exception | None:
    """None if the class does not let itself be made so."""
    try:
        made = kind.__new__(kind, *given)
        made.args = given
        made.__dict__.update(({} if code is None else {"code": code}), **properties)
    except Exception:
        return None
    return made


def _says(error: Exception) -> str | None:
    try:
        return str(error)
    except Exception:
        return None
