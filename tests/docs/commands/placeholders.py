"""What stands for the placeholders of a command: ids, addresses, folders, keys."""

import re
import shlex

import zmq

from tests.docs.commands.preparing import function_run
from tests.docs.commands.stage import Stage


def filled_in(stage: Stage, text: str) -> str:
    """The command with everything that its page leaves to the reader."""
    text = _from_answers(stage, text)
    if "/shards/3/checkpoint" in text and '"epoch": 1' in text:
        text = text.replace('"epoch": 1', f'"epoch": {stage.epoch_of("orders", 3)}')
    if "orders web-1" in text:
        stage.member("orders", "web-1")  # its lease may be over
    if "/api/workers/shell-1/logs" in text:
        lease, worker = stage.lease("resize", by="shell-1")
        leaving = f"/api/workers/shell-1?incarnation={worker['incarnation']}"
        stage.afterwards(lambda: stage.call("DELETE", leaving))
        cancelled = {"ids": [lease["task_id"]]}  # or the next worker would get it
        stage.afterwards(lambda: stage.call("POST", "/api/tasks/cancel", cancelled))
        text = text.replace("TASK_ID", lease["task_id"])
        text = text.replace('"fence": 1', f'"fence": {lease["fence"]}')
    if re.search(r"\bRUN_ID\b", text):
        run_id = _run_for(stage, text)
        text = re.sub(r"\bRUN_ID\b", run_id, text)
        if "--token-id TOKEN_ID" in text:
            text = text.replace("TOKEN_ID", stage.token_of(run_id))
    if re.search(r"\bTASK_ID\b", text):
        text = re.sub(r"\bTASK_ID\b", _task_for(stage, text), text)
    for place, own in (
        ("http://127.0.0.1:7070", stage.url),
        ("http://rota.internal:7070", stage.url),
        ("http://rota.default.svc:7070", stage.url),
        ("http://10.0.0.5:7070", stage.url),
        ("localhost:7070", stage.url.removeprefix("http://")),
        ("tcp://127.0.0.1:5555", stage.zeromq),
        ("--zmq-port 5555", "--zmq-port 0"),
        ("BIND_PORT=5555", "BIND_PORT=0"),
        ("https://hooks.slack.example", stage.receiver.url),
        ("https://ops.example", stage.receiver.url),
        ("https://fn.example", stage.receiver.url),
        ("/opt/rota/bin/rota", "rota"),
        ("/var/lib/rota", str(stage.folder)),
        ("/var/backups", str(stage.folder)),
        ("/etc/rota", str(stage.folder)),
        ("10.0.0.5:7070", "127.0.0.1:7070"),
        ("10.0.0.6:7070", "127.0.0.1:7070"),
        ("10.0.0.5", "127.0.0.1"),
        ("10.0.0.6", "127.0.0.1"),
    ):
        text = text.replace(place, own)
    address = re.compile(r"postgresql://(?:rota@[\w.:]+/\w+|…)")
    return address.sub(lambda _: shlex.quote(stage.postgres), text)


def _from_answers(stage: Stage, text: str) -> str:
    """The command with what the commands before it have printed."""
    leases = stage.answer.get("leases", [])
    if '"running": ["TASK_ID"]' in text:  # the coordinator takes back what is not named
        running = ", ".join(f'"{lease["task_id"]}"' for lease in leases)
        text = text.replace('"TASK_ID"', running)
    if "/progress" in text and len(leases) > 1:  # the first has been reported
        text = text.replace("TASK_ID", leases[1]["task_id"])
    if "/api/workers/shell-1" in text and "incarnation" in stage.answer:
        own = rf"\g<1>{stage.answer['incarnation']}"
        text = re.sub(r'(incarnation(?:": |=))1\b', own, text)
    fixed = dict(stage.fixed)
    if "/api/jobs/" in text:
        fixed.pop("TASK_ID", None)  # a job is another task
    for known, value in fixed.items():
        own = value.replace("\\", r"\\")
        text = re.sub(rf"(?<![\w-]){re.escape(known)}(?!\w)", own, text)
    if "token revoke TOKEN_ID" in text:
        listed = stage.terminal.json("rota token ls --json")
        text = text.replace("TOKEN_ID", listed["items"][0]["id"])
    if "/locks/" in text:
        text = text.replace('"fence": 12', f'"fence": {stage.answer.get("fence", 12)}')
    if "version" in stage.answer:
        text = text.replace("if_version=17", f"if_version={stage.answer['version']}")
    if "THE-PUBLIC-KEY" in text:
        public = zmq.curve_keypair()[0].decode()
        text = text.replace("'THE-PUBLIC-KEY-OF-FORTY-CHARACTERS'", shlex.quote(public))
    return text


def _run_for(stage: Stage, text: str) -> str:
    """A run that the command can be used on."""
    if signal := re.search(r"signal RUN_ID (\w+)", text):
        return stage.waiting_run(signal.group(1))
    if "runs fork RUN_ID --from '" in text:
        return function_run(stage)
    return stage.failed_run() if "runs retry" in text else _run_of_page(stage, text)


def _run_of_page(stage: Stage, text: str) -> str:
    """A run of what the page is about."""
    if (stage.folder / "panel.yaml").exists():
        return stage.panel_run()
    if (stage.folder / "examples").exists():
        return stage.example_run("refine" if "refine" in text else "document_pipeline")
    return stage.waiting_run()


def _task_for(stage: Stage, text: str) -> str:
    """A task that the command can be used on."""
    verbs = ("tasks retry", "tasks show", "tasks acknowledge", "tasks logs", "wait_ms=")
    if any(verb in text for verb in verbs):
        return stage.failed_task()
    if "/complete" in text or "/fail" in text:
        task = stage.task()
        stage.call("POST", f"/api/jobs/{task}/start", {"worker_id": "cron-1"})
        return task
    if "fence" in text or "running" in text:
        return stage.fixed["TASK_ID"]
    return stage.task()
