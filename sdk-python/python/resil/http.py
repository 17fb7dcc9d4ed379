"""For responses over HTTP: headers of rate limits, problem responses, idempotency keys. The ASGI middleware is made of these.

>>> import resil
>>> from resil.http import problem, rate_limit_headers
>>> client = resil.connect("memory://").wait()
>>> verdict = client.limiter("api", limit=5, period=60).check("ann").wait()
>>> dict(rate_limit_headers("api", verdict))["x-ratelimit-remaining"]
'4'
>>> problem(resil.CircuitOpenError("the circuit bank is open", retry_after=1.2))["status"]
503
"""

from __future__ import annotations

from ._native import idempotency_key, problem, rate_limit_headers, request_fingerprint

__all__ = ["idempotency_key", "problem", "rate_limit_headers", "request_fingerprint"]
