"""The tasks of the shop."""

import django

from rota.contrib.django import task_options

if django.VERSION < (6, 0):
    from django_tasks import task
else:
    from django.tasks import task

from shop.models import Order


@task(queue_name="mail")
@task_options(max_attempts=5, timeout="30s")
def confirm(order_id: int) -> str:
    """Send the mail of an order. A second run changes nothing."""
    order = Order.objects.get(pk=order_id)
    if not order.is_confirmed:
        print(f"to {order.email}: thank you for order {order.pk}")
        order.is_confirmed = True
        order.save()
    return order.email
