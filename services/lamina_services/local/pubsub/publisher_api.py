"""The Publisher service."""

from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from lamina_services.local.pubsub import names, rpc
from lamina_services.local.pubsub.broker import Broker
from lamina_services.local.pubsub.checks import check_publish
from lamina_services.local.pubsub.shapes import TopicConfig, proto_class

_PublishResponse = proto_class("PublishResponse")
_ListTopicsResponse = proto_class("ListTopicsResponse")
_ListTopicSubscriptionsResponse = proto_class("ListTopicSubscriptionsResponse")


class PublisherApi:
    """Topics and publishing, over a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handler(self) -> grpc.GenericRpcHandler:
        """What the server registers."""
        return rpc.service(
            "Publisher",
            {
                "CreateTopic": rpc.unary("Topic", self._create_topic),
                "GetTopic": rpc.unary("GetTopicRequest", self._get_topic),
                "UpdateTopic": rpc.unary("UpdateTopicRequest", self._update_topic),
                "ListTopics": rpc.unary("ListTopicsRequest", self._list_topics),
                "ListTopicSubscriptions": rpc.unary(
                    "ListTopicSubscriptionsRequest", self._list_subscriptions
                ),
                "DeleteTopic": rpc.unary("DeleteTopicRequest", self._delete_topic),
                "Publish": rpc.unary("PublishRequest", self._publish),
            },
        )

    async def _create_topic(self, request: TopicConfig) -> TopicConfig:
        self._broker.create_topic(request)
        return request

    async def _get_topic(self, request: Any) -> TopicConfig:
        return self._broker.topic(request.topic).config

    async def _update_topic(self, request: Any) -> TopicConfig:
        current = self._broker.topic(request.topic.name).config
        merged = rpc.merge_fields(current, request.topic, request.update_mask.paths, immutable=["name"])
        self._broker.update_topic(merged)
        return merged

    async def _list_topics(self, request: Any) -> Any:
        prefix = names.project_name(request.project) + "/"
        ours = (name for name in self._broker.topics if name.startswith(prefix))
        found, token = rpc.page(ours, request.page_size, request.page_token)
        topics = [self._broker.topics[name].config for name in found]
        return _ListTopicsResponse(topics=topics, next_page_token=token)

    async def _list_subscriptions(self, request: Any) -> Any:
        attached = self._broker.topic(request.topic).subscriptions
        found, token = rpc.page(attached, request.page_size, request.page_token)
        return _ListTopicSubscriptionsResponse(subscriptions=found, next_page_token=token)

    async def _delete_topic(self, request: Any) -> Any:
        self._broker.delete_topic(request.topic)
        return Empty()

    async def _publish(self, request: Any) -> Any:
        self._broker.topic(request.topic)
        check_publish(request.ByteSize(), request.messages)
        return _PublishResponse(message_ids=self._broker.publish(request.topic, request.messages))
