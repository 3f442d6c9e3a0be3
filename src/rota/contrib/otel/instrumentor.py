"""Turns tracing of an app on and off."""

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from rota.contrib.otel.tracing import TracingMiddleware
from rota.sdk.app.app import Rota


class RotaInstrumentor:
    """Installs the tracing middleware in apps; the same providers serve all of them."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Providers that are not given are the global ones of the program."""
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider

    def instrument(self, app: Rota) -> None:
        """Trace an app from now on; an app that is traced already stays as it is."""
        if _tracing_of(app) is None:
            app.use_middleware(
                TracingMiddleware(
                    tracer_provider=self._tracer_provider, meter_provider=self._meter_provider
                )
            )

    def uninstrument(self, app: Rota) -> None:
        """Trace an app no more."""
        found = _tracing_of(app)
        if found is not None:
            app.remove_middleware(found)


def _tracing_of(app: Rota) -> TracingMiddleware | None:
    installed = () if app.middleware is None else app.middleware.installed
    return next((one for one in installed if isinstance(one, TracingMiddleware)), None)
