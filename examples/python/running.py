"""What the examples have in common: where they run, and as how many processes.

Each example is one file that can be read from the top: ``python examples/python/payments.py``. It needs the package ``resil``
and no set-up: without an argument it runs on ``memory://``, the same state machines inside the program. With a URL
(``make run`` starts a server on ``redis://127.0.0.1:6379``), or with one in ``RESIL_URL``, it runs there.
"""

from __future__ import annotations

import os
import sys
import time

import resil


def url() -> str:
    """The first argument, or else ``RESIL_URL``, or else ``memory://``."""
    return sys.argv[1] if len(sys.argv) > 1 else os.environ.get("RESIL_URL", "memory://")


def connect(url: str, example: str, process: str) -> resil.Pending[resil.Client]:
    """A client as a process called `process` would have it.

    Plain ``memory://`` would be a store of its own for each; one that has a name is shared by all in this program, so the
    example gives it its own.
    """
    return resil.connect(f"memory://{example}" if url == "memory://" else url, name=process)


def this_run() -> str:
    """A server remembers earlier runs of a program; the names of this one are others."""
    return f"{time.time_ns() // 1000:x}"
