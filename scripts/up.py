"""Something to see: a coordinator on one SQLite file, example workers, tasks and a workflow.

Started by `make up`; ends with Ctrl-C. Arguments go to `rota up`, such as `--port 8080`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROTA = Path(sys.executable).with_name("rota")
STORE = ROOT / ".rota" / "rota.db"
ROUND_S = 5.0  # a few new tasks every so often, so that something moves
STOP_S = 20.0
REGIONS = [{"name": "alps", "shops": ["zug", "chur"]}, {"name": "coast", "shops": ["kiel"]}]


def start(*arguments: str, **options: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # the checkout's own command, with arguments made here
        [str(ROTA), *arguments], cwd=ROOT, text=True, **options
    )


def coordinator(arguments: list[str]) -> "tuple[subprocess.Popen[str], str]":
    """Start the coordinator; returns when it serves, with its address."""
    STORE.parent.mkdir(exist_ok=True)
    process = start(
        "up", "--store", f"sqlite:///{STORE}", "--json", *arguments, stdout=subprocess.PIPE
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

  open      {url}           what this coordinator offers
            {url}/docs      its API, to read
            {url}/health    its health
  state     {STORE}
  look      .venv/bin/rota tasks ls · .venv/bin/rota workers ls · .venv/bin/rota runs ls
            (with --url {url} if you changed the port)
  stop      Ctrl-C

Two workers run examples/app.py and examples/workflows/tasks.py. Every {ROUND_S:.0f} seconds
new tasks arrive, and a run of examples/workflows/nested.yaml starts.
""",
        flush=True,
    )


def feed(url: str, stop: threading.Event) -> None:
    """Submit an example task of every kind, tell what became of them, and again until stopped."""
    sys.path.insert(0, str(ROOT))
    os.environ["ROTA_URL"] = url
    from examples import app  # noqa: PLC0415 - the address must be set before
    from examples.workflows.tasks import app as flows  # noqa: PLC0415

    nested = flows.workflow(ROOT / "examples" / "workflows" / "nested.yaml")
    number = 0
    while not stop.is_set():
        number += 1
        try:
            handles = {
                "quick": app.quick.enqueue(f"round {number}"),
                "flaky": app.flaky.enqueue(),
                "slow": app.slow.enqueue(steps=4, step_ms=250),
                "primes": app.primes.enqueue(below=100_000),
            }
            run = nested.start({"regions": REGIONS})
            results = [f"{name} {one.result(timeout=60)!r}" for name, one in handles.items()]
            results.append(f"nested {run.result(timeout=60)}")
            print(f"  round {number}: {' · '.join(results)}", flush=True)
        except Exception as error:  # noqa: BLE001 - shown, and tried again in the next round
            if not stop.is_set():
                print(f"  round {number}: {error}", flush=True)
        stop.wait(ROUND_S)


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    serving, url = coordinator(sys.argv[1:])
    working = [
        start("worker", app, "--url", url)
        for app in ("examples.app:app", "examples.workflows.tasks:app")
    ]
    tell(url)
    threading.Thread(target=feed, args=(url, stop), daemon=True).start()
    while not stop.wait(0.5):
        if any(process.poll() is not None for process in (serving, *working)):
            break
    stop.set()
    # The workers first: they hand back what they hold while there is somebody to take it.
    for process in (*working, serving):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    print("stopped; the tasks are still in the store.", flush=True)
    sys.exit(serving.returncode or 0)


if __name__ == "__main__":
    main()
