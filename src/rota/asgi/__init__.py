"""Rota inside an application of FastAPI, Starlette, or any other ASGI framework.

    rota = Rota(embedded=True)
    app = FastAPI(lifespan=lifespan(rota))
    app.mount("/rota", dashboard(rota))

`lifespan` starts and stops the app of Rota with the server, `get_rota` gives it to request handlers
(`Depends(get_rota)`), and `dashboard` serves the dashboard and the HTTP API of an embedded
coordinator.
"""

from rota.asgi.dashboard import Authorize as Authorize
from rota.asgi.dashboard import dashboard as dashboard
from rota.asgi.lifespan import get_rota as get_rota
from rota.asgi.lifespan import lifespan as lifespan

__all__ = ["Authorize", "dashboard", "get_rota", "lifespan"]
