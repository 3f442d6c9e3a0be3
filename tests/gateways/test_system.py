import pytest

from rota.addresses import without_password
from tests.gateways.serving import Api


async def test_the_system_shows_what_it_runs_with(api: Api) -> None:
    system = (await api.get("/api/system")).json()

    settings = {one["name"]: one for one in system["settings"]}
    assert system["store"]["kind"] == "sqlite"
    assert system["store"]["size_bytes"] > 0
    assert (settings["port"]["value"], settings["port"]["is_default"]) == (0, False)
    assert settings["host"]["is_default"]
    assert settings["host"]["description"]
    assert {"name": "MAX_PAGE", "value": 1_000} in system["limits"]
    assert system["figures"]["commits"] >= 0


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:///rota.db", "sqlite:///rota.db"),
        ("postgresql://ada:secret@db/rota", "postgresql://ada:…@db/rota"),
        ("postgresql://ada@db/rota", "postgresql://ada@db/rota"),
        (
            "postgresql://db/rota?password=secret&sslmode=require",
            "postgresql://db/rota?password=…&sslmode=require",
        ),
    ],
)
def test_a_password_is_never_shown(address: str, shown: str) -> None:
    assert without_password(address) == shown
