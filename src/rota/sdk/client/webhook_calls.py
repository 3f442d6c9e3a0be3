"""API calls about webhooks."""

from rota.messages import NoFields
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
