"""The Python SDK beside what one would use instead, on this machine, in one run.

Usage: main.py PORT PLAIN_PORT [--quick] [policies] [caches] [checks] [locks] [telemetry]. On PORT is a server with the module, on PLAIN_PORT one
without. Prints tables and bars in Markdown. `import resil` has to find a release build: `compare` of benches sees to it.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys

import caches
import checks
import locks
import policies
import telemetry
from turns import Bars

PARTS = ("policies", "caches", "checks", "locks", "telemetry")


def main() -> None:
    words = sys.argv[1:]
    port, plain_port = int(words[0]), int(words[1])
    quick = "--quick" in words
    wanted = [part for part in PARTS if part in words] or list(PARTS)
    packages = ("redis", "hiredis", "limits", "tenacity", "stamina", "pybreaker", "cachetools", "opentelemetry-sdk")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"CPython {platform.python_version()}; {versions}.\n", flush=True)
    bars = Bars()
    if "policies" in wanted:
        policies.measure(20 if quick else 400, bars)
    if "caches" in wanted:
        caches.measure(port, plain_port, 3 if quick else 15, bars)
    if "checks" in wanted:
        checks.measure(port, plain_port, 3 if quick else 15, bars)
    if "locks" in wanted:
        locks.measure(port, plain_port, 1.0 if quick else 3.0, 1 if quick else 3, bars)
    if "telemetry" in wanted:
        telemetry.measure(port, 500 if quick else 4_000, 3 if quick else 15, bars)
    print("#### Bars\n")
    bars.print()


if __name__ == "__main__":
    main()
