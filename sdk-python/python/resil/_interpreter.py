"""Refuses to be imported in a sub-interpreter: the runtime and the classes of the native module belong to one interpreter.

It is asked before the native module is loaded, which would belong to the first interpreter that loads it.
"""

from __future__ import annotations

import importlib


def _is_main() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
            return bool(interpreters.get_current() == interpreters.get_main())
        except (ImportError, AttributeError):
            continue  # it has another name in this Python
    return True


if not _is_main():
    raise ImportError("resil works in the main interpreter only, and this is a sub-interpreter: use processes or threads")
