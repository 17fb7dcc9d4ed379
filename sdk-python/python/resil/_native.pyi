"""The types of the native module: those of `_stubs/`, together.

Generated from resil/_stubs/ by `cargo run -p resil-harness --bin generate`. Do not edit.
"""

# ruff: noqa: F403

from typing import final

from ._stubs.around import *
from ._stubs.breaker import *
from ._stubs.breaker import _MakesBreakers
from ._stubs.bulkhead import *
from ._stubs.cached import *
from ._stubs.cached import _MakesCaches
from ._stubs.client import *
from ._stubs.client import _Client
from ._stubs.dead_letters import *
from ._stubs.dead_letters import _MakesDeadLetters
from ._stubs.dispatcher import *
from ._stubs.fallback import *
from ._stubs.hedge import *
from ._stubs.held import *
from ._stubs.http import *
from ._stubs.idempotent import *
from ._stubs.idempotent import _MakesIdempotents
from ._stubs.internal import *
from ._stubs.limiter import *
from ._stubs.limiter import _MakesLimiters
from ._stubs.lock import *
from ._stubs.lock import _MakesLocks
from ._stubs.pending import *
from ._stubs.policies import *
from ._stubs.policies import _MakesStoredPolicies
from ._stubs.policy import *
from ._stubs.policy import _MakesPolicies
from ._stubs.retry import *
from ._stubs.shared_bulkhead import *
from ._stubs.shared_bulkhead import _MakesSharedBulkheads
from ._stubs.testing import *
from ._stubs.timeout import *
from ._stubs.worker import *
from ._stubs.worker import _MakesWorkers

__version__: str

@final
class Client(
    _Client,
    _MakesBreakers,
    _MakesCaches,
    _MakesDeadLetters,
    _MakesIdempotents,
    _MakesLimiters,
    _MakesLocks,
    _MakesStoredPolicies,
    _MakesPolicies,
    _MakesSharedBulkheads,
    _MakesWorkers,
): ...
