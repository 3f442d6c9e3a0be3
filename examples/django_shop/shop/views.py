"""Place an order, and see whether its mail was sent."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import confirm


@csrf_exempt  # so that curl can be used
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(email=request.GET["to"])
        result = confirm.enqueue(order.pk)  # submitted with the commit
    return JsonResponse({"order": order.pk, "mail": result.id}, status=201)


def show_mail(_: HttpRequest, result_id: str) -> JsonResponse:
    result = confirm.get_result(result_id)
    return JsonResponse({"status": result.status, "attempts": result.attempts})
