"""A FastAPI application with a coordinator inside it: `uvicorn fastapi_app:app`.

    pip install 'rota[fastapi]' uvicorn
    curl -X POST 'http://127.0.0.1:8000/greetings?name=Ada'
    curl http://127.0.0.1:8000/greetings/ID

The dashboard is at http://127.0.0.1:8000/rota, and asks for a token. Make one before the start:
`rota token create --scope admin --store sqlite:///rota.db`. With ROTA_URL the application uses the
coordinator at that address instead, as it has to with several processes.
"""

from typing import Annotated

from fastapi import Depends, FastAPI

from rota import Rota
from rota.asgi import dashboard, get_rota, lifespan

rota = Rota(embedded=True)
app = FastAPI(lifespan=lifespan(rota, worker=True))
app.mount("/rota", dashboard(rota))


@rota.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


@app.post("/greetings", status_code=202)
async def start(name: str) -> dict[str, str]:
    handle = await greet.aenqueue(name)
    return {"id": handle.id}


@app.get("/greetings/{task_id}")
async def show(task_id: str, rota: Annotated[Rota, Depends(get_rota)]) -> dict[str, str | None]:
    handle = rota.handle(task_id)
    state = await handle.astatus()
    return {"state": state, "greeting": await handle.aresult() if state == "succeeded" else None}
