"""The errors of the emulator. A `Refusal` carries the gRPC status that the real service answers."""

from typing import ClassVar

from grpc import StatusCode


class EmulatorFault(Exception):  # noqa: N818 - each subclass names its cause, not that it is an error
    """Anything the emulator raises on purpose."""


class PortUnavailable(EmulatorFault):
    """The port cannot be bound. Remedy: stop what listens there, or choose another."""


class StateFileUnusable(EmulatorFault):
    """The state file is in use or of another version. Remedy: stop its user, or delete the file."""


class Refusal(EmulatorFault):
    """A request that cannot be served. The RPC layer turns it into `code` with the message as details."""

    code: ClassVar[StatusCode] = StatusCode.INTERNAL


class InvalidArgument(Refusal):
    """The request is malformed. Remedy: mend the request; a retry cannot help."""

    code = StatusCode.INVALID_ARGUMENT


class NotFound(Refusal):
    """The named topic or subscription does not exist. Remedy: create it first."""

    code = StatusCode.NOT_FOUND


class AlreadyExists(Refusal):
    """The name is taken. Remedy: use the existing resource, or update it."""

    code = StatusCode.ALREADY_EXISTS


class FailedPrecondition(Refusal):
    """The resource is in the wrong mode, such as a pull on a push subscription."""

    code = StatusCode.FAILED_PRECONDITION


class Unavailable(Refusal):
    """The emulator is stopping. Remedy: the official clients reconnect by themselves."""

    code = StatusCode.UNAVAILABLE
