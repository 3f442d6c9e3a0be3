from rota.core.access import AccessToken, Scope
from tests.store.opened import Opened


def token(token_id: str, name: str = "n") -> AccessToken:
    return AccessToken(
        id=token_id,
        hash="h",
        name=name,
        scopes=(Scope.WORKER, Scope.READ),
        queues=("mail",),
        worker_id="w1",
        created_at_ms=1,
        expires_at_ms=2,
    )


def test_tokens_are_kept_whole_until_they_are_dropped(store: Opened) -> None:
    store.access.put(token("b"))
    store.access.put(token("a"))
    store.access.put(token("a", name="renamed"))

    assert store.access.all() == [token("a", name="renamed"), token("b")]
    store.access.delete("a")
    store.access.delete("unknown")
    assert store.access.ids() == {"b"}
