"""Which domains a batch may need, by the kinds of its commands."""

from typing import get_args

from rota.core.commands import Command, SubmitTasks
from rota.engine.commit.domains import DOMAINS, possible_domains
from rota.engine.commit.task_domain import TaskDomain
from rota.engine.events.recorder import HistoryDomain
from rota.engine.flows.flow_domain import FlowDomain

KINDS = [kind for kind in get_args(Command) if isinstance(kind, type)]


def test_every_command_has_a_domain_that_reduces_it_and_is_always_possible() -> None:
    assert len(KINDS) > 20
    for kind in KINDS:
        (domain,) = [one for one in DOMAINS if kind in one.COMMANDS]
        possible = possible_domains(frozenset({kind, SubmitTasks}))
        (found,) = [one for one in possible if one.domain is domain]
        assert found.is_certain, kind
        assert found.has_commands, kind


def test_possible_domains_keep_the_order_of_the_domains() -> None:
    for kind in KINDS:
        found = [one.domain for one in possible_domains(frozenset({kind}))]
        assert found == [domain for domain in DOMAINS if domain in found]


def test_a_domain_that_is_not_certain_is_asked_about_the_batch() -> None:
    for kind in KINDS:
        kinds = frozenset({kind})
        for one in possible_domains(kinds):
            assert one.is_certain == one.domain.is_named_by(kinds)
            assert one.is_certain or one.domain.looks_further(kinds)


def test_only_domains_that_do_nothing_before_they_write_have_no_steps() -> None:
    steps = {
        one.domain: one.has_steps for kind in KINDS for one in possible_domains(frozenset({kind}))
    }
    assert not steps[HistoryDomain]
    assert steps[TaskDomain]
    assert steps[FlowDomain]
