"""Which domains a batch may need, by the kinds of its commands."""

from typing import get_args

from rota.core.commands import Command, SubmitTasks
from rota.engine.commit.domains import DOMAINS, possible_domains

KINDS = [kind for kind in get_args(Command) if isinstance(kind, type)]


def test_every_command_has_a_domain_that_reduces_it_and_is_always_possible() -> None:
    assert len(KINDS) > 20
    for kind in KINDS:
        (domain,) = [one for one in DOMAINS if kind in one.COMMANDS]
        assert domain in dict(possible_domains(frozenset({kind, SubmitTasks}))), kind


def test_possible_domains_keep_the_order_of_the_domains() -> None:
    for kind in KINDS:
        found = [domain for domain, _ in possible_domains(frozenset({kind}))]
        assert found == [domain for domain in DOMAINS if domain in found]


def test_a_domain_that_is_certain_is_one_that_goes_by_the_kinds_alone() -> None:
    for kind in KINDS:
        kinds = frozenset({kind})
        for domain, is_certain in possible_domains(kinds):
            assert not is_certain or domain.is_named_by(kinds)
