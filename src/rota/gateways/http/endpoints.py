"""All endpoints of the HTTP gateway, in the order in which the OpenAPI document lists them."""

from rota.gateways.http.resources import (
    access,
    events,
    health,
    kv,
    locks,
    operations,
    schedules,
    webhooks,
)
from rota.gateways.http.resources.services import checkpoints, members, services
from rota.gateways.http.resources.tasks import (
    acknowledgements,
    failures,
    jobs,
    key_limits,
    logs,
    push,
    queues,
    tasks,
)
from rota.gateways.http.resources.workers import reports, scale, work, workers
from rota.gateways.http.resources.workflows import (
    artifacts,
    functions,
    run_inspection,
    runs,
    scopes,
    waits,
    workflows,
)

ENDPOINTS = (
    *tasks.routes.endpoints,
    *logs.routes.endpoints,
    *queues.routes.endpoints,
    *push.routes.endpoints,
    *key_limits.routes.endpoints,
    *scale.routes.endpoints,
    *workers.routes.endpoints,
    *work.routes.endpoints,
    *reports.routes.endpoints,
    *jobs.routes.endpoints,
    *workflows.routes.endpoints,
    *runs.routes.endpoints,
    *waits.routes.endpoints,
    *run_inspection.routes.endpoints,
    *functions.routes.endpoints,
    *scopes.routes.endpoints,
    *artifacts.routes.endpoints,
    *schedules.routes.endpoints,
    *kv.routes.endpoints,
    *locks.routes.endpoints,
    *events.routes.endpoints,
    *webhooks.routes.endpoints,
    *services.routes.endpoints,
    *members.routes.endpoints,
    *checkpoints.routes.endpoints,
    *access.routes.endpoints,
    *failures.routes.endpoints,
    *acknowledgements.routes.endpoints,
    *health.routes.endpoints,
    *operations.routes.endpoints,
)
