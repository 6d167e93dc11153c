"""Turns plain async methods over protobuf messages into gRPC handlers, and refusals into statuses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.field_mask_pb2 import FieldMask

from lamina_services.local.pubsub.faults import InvalidArgument, Refusal
from lamina_services.local.pubsub.shapes import Proto, proto_class

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # generic for the type checker only
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

DEFAULT_PAGE = 100


def unary(request_type: str, method: Callable[[Any], Awaitable[Proto]]) -> Handler:
    """A handler for one request and one response."""

    async def behaviour(request: Any, context: Context) -> Any:
        try:
            return await method(request)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))

    return grpc.unary_unary_rpc_method_handler(
        behaviour,
        request_deserializer=proto_class(request_type).FromString,
        response_serializer=_serialize,
    )


def stream(
    request_type: str,
    method: Callable[[AsyncIterator[Any], Callable[[Any], Awaitable[None]]], Awaitable[None]],
) -> Handler:
    """A handler for a stream each way; the method gets the requests and a way to send a response."""

    async def behaviour(requests: AsyncIterator[Any], context: Context) -> None:
        try:
            await method(requests, context.write)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))

    return grpc.stream_stream_rpc_method_handler(
        behaviour,
        request_deserializer=proto_class(request_type).FromString,
        response_serializer=_serialize,
    )


def service(name: str, handlers: dict[str, Handler]) -> grpc.GenericRpcHandler:
    """The handlers of one service of the API; methods that are not named answer UNIMPLEMENTED."""
    return grpc.method_handlers_generic_handler(f"google.pubsub.v1.{name}", handlers)


def merge_fields(current: Proto, update: Any, paths: Sequence[str], *, immutable: Iterable[str]) -> Any:
    """A copy of `current` with the fields named by a field mask taken from `update`."""
    if not paths:
        raise InvalidArgument("The update_mask is empty.")
    fixed = set(immutable)
    for path in paths:
        if path.split(".")[0] in fixed:
            raise InvalidArgument(f"The field {path!r} cannot be updated.")
    merged: Any = type(current)()
    merged.CopyFrom(current)
    try:
        FieldMask(paths=paths).MergeMessage(update, merged, True, True)
    except (KeyError, ValueError) as error:
        raise InvalidArgument(f"The update_mask names an unknown field: {error}.") from error
    return merged


def page(keys: Iterable[str], size: int, token: str) -> tuple[list[str], str]:
    """The names after `token` in order, at most `size` of them, and the token of the next page."""
    if size < 0:
        raise InvalidArgument("The page size is negative.")
    size = size or DEFAULT_PAGE
    rest = sorted(key for key in keys if key > token)
    return rest[:size], rest[size - 1] if len(rest) > size else ""


def _serialize(message: Proto) -> bytes:
    return message.SerializeToString()
