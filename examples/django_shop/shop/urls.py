"""The addresses of the shop."""

from django.urls import path

from shop import views

urlpatterns = [
    path("orders", views.place_order),
    path("mails/<str:result_id>", views.show_mail),
]
