"""Something to see: a coordinator on one SQLite file, and a shop that lives on it.

Started by `make up`; ends with Ctrl-C. Arguments go to `rota up`, such as `--port 8080`.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading

from shop_life import ROOT, ROTA, Shop

STORE = ROOT / ".rota" / "rota.db"
LOG = ROOT / ".rota" / "shop.log"
STOP_S = 20.0


def coordinator(arguments: list[str]) -> "tuple[subprocess.Popen[str], str]":
    """Start the coordinator; returns when it serves, with its address."""
    STORE.parent.mkdir(exist_ok=True)
    command = [str(ROTA), "up", "--store", f"sqlite:///{STORE}", "--json", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(process.wait())
    return process, json.loads(line)["url"]


def tell(url: str) -> None:
    print(
        f"""
Rota is up.

  open      {url}           the dashboard, live
            {url}/docs      the API, to read
            {url}/health    its health
  state     {STORE}
  log       {LOG}, of the workers
  look      .venv/bin/rota tasks ls · .venv/bin/rota workers ls · .venv/bin/rota runs ls
            (with --url {url} if you changed the port)
  stop      Ctrl-C

A small shop lives here: two workers take its tasks (examples/shop.py), an order runs through
examples/workflows/order.yaml every few seconds, some cards are refused, a video waits for a worker
with a GPU that nobody has, and consumers share the shards of a service; a third comes and goes.
Large orders wait for your yes under Runs for half a minute. Under Limits are an API that allows two
calls a second and customers who get one parcel packed at a time; two branches share the queue
"labels" three to one; stock is counted every fifteen seconds, and the books are closed every night.
Parcels come back to a durable function, take_back: its runs are code, and large refunds wait for
your yes, too.
""",
        flush=True,
    )


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    serving, url = coordinator(sys.argv[1:])
    with LOG.open("wb") as log:  # on the terminal it would scroll the address away
        shop = Shop(url, log)
        shop.open()
        tell(url)
        while not stop.wait(0.5):
            if serving.poll() is not None:
                break
            if shop.has_lost_process():
                print(f"a process of the shop has ended; {LOG} has the reason", flush=True)
                break
        print("stopping ...", flush=True)
        shop.close()  # first: its workers return what they hold to a coordinator that still runs
    with contextlib.suppress(ProcessLookupError):
        serving.send_signal(signal.SIGTERM)
    try:
        serving.wait(STOP_S)
    except subprocess.TimeoutExpired:
        serving.kill()
    print("stopped; the tasks are still in the store.", flush=True)
    sys.exit(serving.returncode or 0)


if __name__ == "__main__":
    main()
