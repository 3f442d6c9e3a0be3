"""Tasks that came with others' transactions are accepted, soon after those were committed."""

from rota.core.events import TakeInbox
from rota.engine.duties.duty import Duty
from rota.engine.load import TAKEN_PER_STEP

INBOX = Duty(
    name="inbox",
    interval_ms=1_000,
    event=lambda _now_ms, settings: TakeInbox(settings.max_payload_bytes),
    full_step=TAKEN_PER_STEP,
    listens=True,
    # Looked at beside the writer: most stores have no inbox to speak of.
    is_due=lambda queries: queries.has_inbox(),
)
