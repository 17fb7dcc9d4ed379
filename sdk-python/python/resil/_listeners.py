"""The thread that calls listeners, and logs what happens to connections: threads of the runtime must not, since they would wait
for the interpreter.

It has left the native module before the interpreter ends, or is inside of a listener, where it can be stopped like any daemon.
"""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Optional

from ._native import close_transitions, next_transition

#: How long the end of the program waits for a listener that is being called.
_PATIENCE = 1.0
_begins = threading.Lock()
_log = logging.getLogger("resil")
_thread: Optional[threading.Thread] = None


def begin() -> None:
    """Starts the thread, unless it runs. A child of a fork has none of its parent's."""
    global _thread
    with _begins:
        if _thread is None:
            atexit.register(_end)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_call_listeners, name="resil-listeners", daemon=True)
            _thread.start()


def _call_listeners() -> None:
    while (notification := next_transition()) is not None:
        listener, said = notification
        try:
            listener(*said)
        except BaseException as error:
            # As if the listener had a thread of its own, which has ended: the next ones are called.
            thread = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))
        # Nothing is kept while it waits for the next one.
        del notification, listener, said


def log_away(address: str, reason: str) -> None:
    _log.warning("the server %s is away, and is tried again: %s", address, reason)


def log_refused(address: str, reason: str) -> None:
    _log.warning("the server %s refuses a command: %s", address, reason)


def log_back(address: str) -> None:
    _log.info("the server %s is back", address)


def log_source_away(name: str, address: str, reason: str) -> None:
    _log.warning("%s: the broker %s is away, and is tried again: %s", name, address, reason)


def log_source_back(name: str, address: str) -> None:
    _log.info("%s: the broker %s is back", name, address)


def log_dead(worker: str, id: str, deaths: int, reason: str) -> None:
    _log.warning("%s: the message %s is dead (%s, deaths: %s); the ledger has its error", worker, id, reason, deaths)


def log_not_recorded(worker: str, id: str, reason: str) -> None:
    _log.error("%s: the ledger refuses the message %s, which stays with its source: %s", worker, id, reason)


def log_missed(count: int) -> None:
    _log.warning("%s events were not reported to hooks: one of them is slow; the metrics have them all", count)


def log_outlived(policy: str, took: float) -> None:
    _log.warning(
        "an attempt under the policy %s took %.3f s, longer than its ticket lasts: it was not counted, and its place was free meanwhile; "
        "timeout.attempt, timeout.total or sharedBulkhead.lease of the policy say how long an attempt may take",
        policy,
        took,
    )


def _end() -> None:
    left = close_transitions()
    if _thread is not None:
        _thread.join(_PATIENCE)
    # A program may be over before the thread came to it: a mistyped host is reported all the same.
    for log, said in left:
        log(*said)
