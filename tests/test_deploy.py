"""The files of deploy/, the Dockerfile and compose.yaml.

No container engine runs the tests. Linters and parsers check the files, and the commands of
compose.yaml run as processes, with its environment and through the image's entry point.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from rota import Rota
from rota.cli.main import cli
from rota.gateways.auth.authenticator import new_secret
from rota.settings import Settings
from tests.databases.schemas import url
from tests.docs.commands.finding import commands_for

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "rota"
ENTRY_POINT = DEPLOY / "docker" / "entrypoint.sh"
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
METRICS = set(re.findall(r"^\| `(rota_\w+)`", REFERENCE, re.MULTILINE))
YAML_FILES = ("compose.yaml", "deploy/prometheus", "deploy/helm/rota/values.yaml")
LINES = "{extends: default, rules: {line-length: {max: 140}, document-start: disable}}"
FILES = {"ROTA_URL", "ROTA_TOKEN_FILE", "ROTA_ADMIN_TOKEN_FILE", "ROTA_WORKER_TOKEN_FILE"}
LIMIT_S = 60


def run(*command: str | Path, **options: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name: str) -> str:
    """A program that this machine may have."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: its file was not checked by it")
    return found


# --- containers ---------------------------------------------------------------------------------


def test_the_commands_of_the_pages_are_about_files_that_are_checked() -> None:
    """They are not run: they need an engine with base images, systemd as init, a cluster."""
    commands = commands_for("tests/test_deploy.py")
    parts = yaml.safe_load_all((ROOT / "examples/keda/worker.yaml").read_text(encoding="utf-8"))

    assert set(commands) == {
        "docker build --tag rota .",
        "systemctl reload rota",
        "kubectl apply -f worker.yaml",
        "kubectl get scaledobject,hpa,deployment image-worker",
    }
    scaled = {(part["kind"], part["metadata"]["name"]) for part in parts}
    assert scaled >= {("ScaledObject", "image-worker"), ("Deployment", "image-worker")}
    assert (ROOT / "Dockerfile").is_file()
    assert (DEPLOY / "systemd" / "rota.service").is_file()


def test_the_dockerfile_pleases_its_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint has no build for this platform")

    run(linter, ROOT / "Dockerfile")


def test_the_image_has_what_the_build_copies() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
        for name in line.split()
    ]

    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert any(f"!{name}".startswith(one) for one in allowed if one.startswith("!"))
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text


@pytest.mark.parametrize("name", YAML_FILES)
def test_yaml_files_please_their_linter(name: str) -> None:
    run(sys.executable, "-m", "yamllint", "--strict", "-d", LINES, ROOT / name)


def test_compose_names_only_what_it_has() -> None:
    services, secrets = COMPOSE["services"], COMPOSE["secrets"]
    settings = {f"ROTA_{name.upper()}" for name in Settings.__struct_fields__}

    for service in services.values():
        assert set(service.get("secrets", [])) <= set(secrets)
        assert set(service.get("depends_on", [])) <= set(services)
        ours = {name for name in service.get("environment", {}) if name.startswith("ROTA_")}
        assert ours <= settings | FILES


@pytest.fixture
def store() -> Iterator[str]:
    """A schema that does not exist yet, and is gone afterwards."""
    schema = f"rota_compose_{os.getpid()}"
    yield f"{url()}{'&' if '?' in url() else '?'}schema={schema}"
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def started(
    service: str, ports: dict[str, int], store: str, secrets: Path
) -> Iterator[subprocess.Popen[str]]:
    """A service of compose.yaml as a process: its command and environment, other addresses."""
    described = COMPOSE["services"][service]
    replaced = {
        "postgresql://rota@database/rota": store,
        "/run/secrets": str(secrets),
        **{f"{name}:7070": f"127.0.0.1:{port}" for name, port in ports.items()},
    }
    environment = {}
    for name, value in described["environment"].items():
        for before, after in replaced.items():
            value = value.replace(before, after)  # noqa: PLW2901 - one after the other
        environment[name] = value
    if service in ports:
        # On loopback, so no caller needs a token; one that is given must be stored all the same.
        environment |= {"ROTA_PORT": str(ports[service]), "ROTA_ZMQ_PORT": "0"}
        del environment["PGPASSWORD_FILE"]  # the database of the tests trusts its users
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [str(ENTRY_POINT), *described["command"]],
        cwd=ROOT,
        env={**kept, "PATH": path, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, rest


def wait_until_it_serves(coordinator: "subprocess.Popen[str]") -> None:
    assert coordinator.stdout is not None
    # Its last line says how it is stopped.
    said = list(takewhile(lambda line: not line.startswith("stop "), coordinator.stdout))
    assert any("dashboard" in line for line in said), "".join(said)


@pytest.mark.slow
def test_the_commands_of_compose_run_a_task(tmp_path: Path, store: str) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("admin", "worker"):
        (secrets / name).write_text(new_secret(), encoding="utf-8")
    ports = {"one": free_port(), "two": free_port()}
    urls = ",".join(f"http://127.0.0.1:{port}" for port in ports.values())
    admin = (secrets / "admin").read_text(encoding="utf-8")

    with ExitStack() as stack:
        # All at once, as an engine starts them: both coordinators find an empty database.
        services = ("one", "two", "worker")
        processes = [stack.enter_context(started(one, ports, store, secrets)) for one in services]
        for coordinator in processes[:2]:
            wait_until_it_serves(coordinator)
        with Rota(urls, admin) as app:
            answer = app.enqueue("quick", {"name": "compose"}).result(timeout=LIMIT_S)

    assert answer == "Hello, compose!"


# --- Kubernetes ---------------------------------------------------------------------------------


def test_the_chart_uses_only_values_that_it_has() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    templates = {path.name: path.read_text(encoding="utf-8") for path in CHART.glob("templates/*")}

    for name, text in templates.items():
        assert text.count("{{") == len(re.findall(r"\{\{(?:(?!\{\{).)+?\}\}", text)), name
        for path in re.findall(r"\.Values\.([\w.]+)", text):
            found: Any = values
            for part in path.split("."):
                assert part in found, f"{name}: .Values.{path}"
                found = found[part]
    assert chart["appVersion"] == chart["version"]


def test_no_pod_gets_the_variables_of_services() -> None:
    """With a Service named rota, they have ROTA_PORT=tcp://…:7070, which is no port."""
    files = [*CHART.glob("templates/*.yaml"), ROOT / "examples" / "keda" / "worker.yaml"]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}

    for name, text in texts.items():
        pods = len(re.findall(r"^kind: Deployment$", text, re.MULTILINE))
        assert text.count("enableServiceLinks: false") == pods, name


EVERYTHING = """
ingress: {enabled: true, className: nginx, tlsSecret: rota-tls}
serviceMonitor: {enabled: true}
coordinator:
  settings: {ROTA_HISTORY_KEEP_MS: "86400000"}
workers:
  - name: images
    image: registry.example/shop:1
    app: shop:app
    queues: [images, thumbnails]
    concurrency: 20
    scale: {min: 0, max: 20, targetMs: 60000}
    env: [{name: SHOP, value: "1"}]
  - {name: mail, image: "registry.example/shop:1", app: "shop:app", replicas: 2}
"""


def test_the_chart_pleases_helm(tmp_path: Path) -> None:
    helm = tool("helm")
    (tmp_path / "values.yaml").write_text(EVERYTHING, encoding="utf-8")

    run(helm, "lint", "--strict", CHART)
    made = run(helm, "template", "rota", CHART, "--values", tmp_path / "values.yaml")

    parts = list(yaml.safe_load_all(made))
    containers = [
        part["spec"]["template"]["spec"]["containers"][0]
        for part in parts
        if part["kind"] == "Deployment"
    ]
    ours = {f"ROTA_{name.upper()}" for name in Settings.__struct_fields__} | FILES | {"ROTA_TOKEN"}
    assert {part["kind"] for part in parts} == {
        *("Deployment", "Service", "PodDisruptionBudget", "Ingress"),
        *("ServiceMonitor", "ScaledObject", "TriggerAuthentication"),
    }
    assert len(containers) == 3
    for container in containers:
        _, command, *arguments = container["args"]
        found = cli.get_command(click.Context(cli), command)
        assert found is not None
        found.make_context(command, arguments)  # which refuses an option that it has not
        names = [one["name"] for one in container["env"]]
        assert {name for name in names if name.startswith("ROTA_")} <= ours


# --- monitoring ---------------------------------------------------------------------------------


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    alerts = (DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    board = json.loads((DEPLOY / "grafana" / "rota.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = set(re.findall(r"\brota_[a-z_]+\b", alerts + " ".join(expressions)))

    assert used - METRICS == set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_no_figure_of_the_store_is_added_up_over_its_coordinators() -> None:
    """Each of them has the gauges of the queues and workers: two have twice the tasks."""
    alerts = (DEPLOY / "prometheus" / "alerts.yaml").read_text(encoding="utf-8")
    board = json.loads((DEPLOY / "grafana" / "rota.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shared = r"rota_(queue|scale|service)_\w+|rota_workers\b|rota_flows_\w+"
    taken_once = rf"max( by \([\w, ]+\))? ?\((?:{shared})"

    for text in (*expressions, *re.findall(r"expr: (.+(?:\n {10}.+)*)", alerts)):
        gauges = [one for one in re.finditer(shared, text) if not one[0].endswith("_total")]
        assert len(re.findall(taken_once, text)) == len(gauges), text


def test_the_alert_rules_please_prometheus(tmp_path: Path) -> None:
    promtool = tool("promtool")
    board = json.loads((DEPLOY / "grafana" / "rota.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    # The queries of the dashboard, in the form of rules.
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$queue", ".*")}
        for number, text in enumerate(expressions)
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]}), encoding="utf-8")

    run(promtool, "check", "rules", DEPLOY / "prometheus" / "alerts.yaml", file)


# --- machines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["rota.service", "rota-worker@.service"])
def test_the_units_please_systemd(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / unit).read_text(encoding="utf-8")
    command = Path(sys.executable).with_name("rota")
    for name in (unit, unit.replace("@", "@shop")):  # of a template, one instance is verified
        file = tmp_path / name
        file.write_text(text.replace("/opt/rota/bin/rota", str(command)), encoding="utf-8")

    run(tool("systemd-analyze"), "verify", "--man=no", tmp_path / unit.replace("@", "@shop"))
