"""API calls about what the coordinator sends to other servers: webhooks, and pushed tasks."""

from rota.messages import NoFields
from rota.messages.outbound.push import PushPut, PushView
from rota.messages.outbound.webhooks import WebhookPage, WebhookPut, WebhookTest, WebhookView
from rota.sdk.client.requests import ApiCall, delete, get, path_at, post, put


def list_webhooks() -> ApiCall[WebhookPage]:
    return get("/api/webhooks", WebhookPage)


def get_webhook(name: str) -> ApiCall[WebhookView]:
    return get(path_at("webhooks", name), WebhookView)


def put_webhook(name: str, request: WebhookPut) -> ApiCall[WebhookView]:
    """Make a webhook, or replace what is set for it.

    Not repeated without a secret: the answer that shows the one that was made may be lost.
    """
    is_repeatable = request.secret is not None
    return put(path_at("webhooks", name), WebhookView, request, is_repeatable=is_repeatable)


def delete_webhook(name: str) -> ApiCall[WebhookView]:
    return delete(path_at("webhooks", name), WebhookView)


def send_test(name: str) -> ApiCall[WebhookTest]:
    """Send a test event now; the receiver may get it twice if the answer is lost."""
    return post(path_at("webhooks", name, "test"), WebhookTest, NoFields())


def get_push(queue: str) -> ApiCall[PushView]:
    return get(path_at("queues", queue, "push"), PushView)


def put_push(queue: str, request: PushPut) -> ApiCall[PushView]:
    """Push the tasks of a queue, or change how; as `put_webhook`, with a secret it is repeated."""
    is_repeatable = request.secret is not None
    path = path_at("queues", queue, "push")
    return put(path, PushView, request, is_repeatable=is_repeatable)


def delete_push(queue: str) -> ApiCall[PushView]:
    return delete(path_at("queues", queue, "push"), PushView)
