"""Pub/Sub on this machine: the real gRPC API over a broker in this process.

Use `Emulator` inside a running asyncio loop, or run the package alone:
`python -m lamina_services.local.pubsub --help`.

What it leaves out answers UNIMPLEMENTED (snapshots, schemas, detaching, IAM) or is accepted without effect
(exactly-once delivery, expiry and retention, message transforms, exports, OIDC tokens on pushes).
"""

from lamina_services.local.pubsub.emulator import Emulator
from lamina_services.local.pubsub.faults import EmulatorFault, PortUnavailable, StateFileUnusable
from lamina_services.local.pubsub.subscription import SubscriptionStats

__all__ = ["Emulator", "EmulatorFault", "PortUnavailable", "StateFileUnusable", "SubscriptionStats"]
