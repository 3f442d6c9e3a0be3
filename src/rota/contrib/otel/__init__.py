"""OpenTelemetry: spans and metrics of what an app enqueues and executes.

    from rota.contrib.otel import RotaInstrumentor

    RotaInstrumentor().instrument(app)

It needs `rota[otel]`, which is the API of OpenTelemetry. The program's own tracer provider decides
which spans are kept and where they go. Without one, nothing is recorded.
"""

from rota.contrib.otel.instrumentor import RotaInstrumentor as RotaInstrumentor
from rota.contrib.otel.tracing import TracingMiddleware as TracingMiddleware
