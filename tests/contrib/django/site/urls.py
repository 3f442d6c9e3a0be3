"""The project has no pages."""

urlpatterns: list[object] = []
