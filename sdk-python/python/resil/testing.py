"""For tests: a clock to drive, and raw commands. :func:`resil.set_testing` makes retries not wait.

>>> import resil
>>> from resil.testing import Clock
>>> clock = Clock.driven()
>>> client = resil.connect("memory://", clock=clock).wait()
>>> logins = client.limiter("logins", limit=1, period=3600)
>>> bool(logins.check("ann").wait()), bool(logins.check("ann").wait())
(True, False)
>>> clock.advance(3600)
>>> bool(logins.check("ann").wait())
True
"""

from __future__ import annotations

from ._native import Clock, raw, raw_at

__all__ = ["Clock", "raw", "raw_at"]
