"""What befalls a run? Each profile is a kind of bad day."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Profile:
    name: str
    trouble: float = 0.1  # share of tasks that fail
    cancels: float = 0.0  # share of steps in which a caller cancels the run
    retries: float = 0.0  # share of failures that a caller retries
    slice_steps: int | None = None  # of an event
    stale_answers: float = 0.0  # share of steps in which an answer to an old question comes again


FAILING = Profile(name="failing", trouble=0.25)
CANCELLED = Profile(name="cancelled", trouble=0.02, cancels=0.05)
RETRIED = Profile(name="retried", trouble=0.25, retries=0.8)
ANSWERED_TWICE = Profile(name="answered twice", trouble=0.0, stale_answers=0.5)
SLICED = Profile(name="sliced", trouble=0.05, slice_steps=2)
STOPPED = Profile(name="stopped", trouble=0.25, cancels=0.02, slice_steps=1)
EVERYTHING = Profile(
    name="everything", trouble=0.15, cancels=0.01, retries=0.5, stale_answers=0.2, slice_steps=3
)

PROFILES = (FAILING, CANCELLED, RETRIED, ANSWERED_TWICE, SLICED, STOPPED, EVERYTHING)


def profile_of(seed: int) -> Profile:
    return PROFILES[seed % len(PROFILES)]
