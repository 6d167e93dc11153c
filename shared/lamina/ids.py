"""New identifiers. (Derived ones, the same on every delivery, are `lamina.model.derived_id`.)"""

import os
import time
import uuid


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): milliseconds since 1970, then random bits. Sorts by time of creation."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    high = (milliseconds << 16) | 0x7000 | (random >> 68 & 0x0FFF)
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    return uuid.UUID(int=(high << 64) | low)
