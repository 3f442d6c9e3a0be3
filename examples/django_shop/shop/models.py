"""An order, and whether its mail was sent."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    is_confirmed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk}"
