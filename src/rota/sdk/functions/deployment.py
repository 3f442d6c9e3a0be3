"""Deploys workflows in code before their worker registers.

A worker serves a pinned run only if it has the code that the run started with. So the coordinator
must know the worker's code first: each version is a capability of the worker.
"""

from collections.abc import Sequence
from typing import Any

import structlog

from rota.core.workflow.functions.model import capability_of
from rota.errors import Conflict, Forbidden, Invalid
from rota.sdk.client.requests import Exchange
from rota.sdk.functions.workflow import CodeWorkflow

log = structlog.get_logger("rota.worker")


def deploying(functions: Sequence[CodeWorkflow[..., Any]]) -> Exchange[list[str]]:
    """The calls that deploy functions; returns the capabilities of a worker that has them.

    A definition that is refused is logged, and its worker serves on: another program may have
    deployed it, and pinned runs are left to other workers.
    """
    capabilities: list[str] = []
    for one in functions:
        try:
            view = yield from one.deploying()
        except (Forbidden, Conflict, Invalid) as error:
            log.warning("workflow_not_deployed", workflow=one.name, reason=error.detail)
        else:
            capabilities.append(capability_of(one.name, view.version))
    return capabilities
