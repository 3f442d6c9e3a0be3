"""The semantics of durable functions, sentence by sentence, and the tests that hold each.

A sentence without a test is a promise that nobody would miss. The tests of this module check that
the table names tests that exist. Each of these fails without what its sentence says; for the rules
that are easiest to lose, `test_mutants.py` and the mutants of the simulation prove it.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {
    "crashes": "simulation/test_function_crashes.py",
    "divergence": "sdk/functions/test_divergence.py",
    "engine": "engine/test_functions.py",
    "generated": "sdk/functions/test_generated.py",
    "host": "sdk/functions/test_host.py",
    "http": "gateways/test_functions.py",
    "kills": "faults/test_function_kills.py",
    "pages": "dashboard/test_function_pages.py",
    "pyright": "sdk/test_pyright.py",
    "races": "core/workflow/test_function_races.py",
    "replay": "sdk/functions/test_replay.py",
    "results": "engine/test_function_results.py",
    "rules": "core/workflow/test_functions.py",
    "schedules": "sdk/functions/test_schedules.py",
    "start": "sdk/functions/test_start.py",
    "steering": "engine/test_function_steering.py",
    "steps": "sdk/functions/test_steps.py",
    "testing": "sdk/functions/test_testing.py",
    "typing": "sdk/functions/test_typing.py",
    "versions": "sdk/functions/test_versions.py",
    "waiting": "sdk/functions/test_waiting.py",
    "what_if": "cli/test_code_replay.py",
    "worker": "sdk/functions/test_worker.py",
}

API = {
    "A function is decorated, with or without options; a source still makes a data workflow.": [
        "versions: a_workflow_is_decorated_or_made_from_its_source",
        "typing: a_workflow_keeps_the_types_of_its_function",
    ],
    "A plain def works too, with a context that blocks.": [
        "waiting: a_plain_function_blocks_is_suspended_and_is_cancelled",
        "steps: a_plain_function_is_a_step_too_and_runs_in_a_thread",
    ],
    "A call runs a task on any worker.": ["engine: a_called_task_ends_its_operation"],
    "A map runs a task for each item, at most so many at once, with one wake-up.": [
        "engine: a_map_runs_its_items_side_by_side_and_ends_once",
        "steering: a_map_that_collects_has_results_and_errors_and_one_that_fails_cancels",
    ],
    "The first error of a gather cancels its other branches.": [
        "waiting: the_first_error_of_a_gather_cancels_its_other_branches",
    ],
    "first waits for one of several, and gives up the others.": [
        "waiting: the_first_is_recorded_and_the_others_are_given_up",
        "engine: the_first_of_several_groups_resumes_the_function",
    ],
    "An approval is that of data workflows, with a form.": [
        "waiting: an_approval_returns_its_form_or_is_rejected",
        "steering: an_approval_answers_one_question",
        "steering: a_refused_approval_fails_the_operation",
        "results: an_approval_that_the_function_has_not_asked_for_is_refused_and_not_kept",
    ],
    "Code and data workflows run each other.": [
        "engine: a_function_runs_a_graph_as_its_child",
        "steering: a_graph_runs_a_function_and_cancels_it",
    ],
    "What is published is readable without a worker, and streams are read as they grow.": [
        "worker: a_suspended_function_goes_on_in_the_memory_of_its_worker",
        "waiting: what_is_published_and_streamed_is_recorded_once",
        "http: a_caller_waits_for_the_values_of_a_stream_and_for_a_reply",
    ],
    "A second start with the same key is the first run.": [
        "worker: a_function_is_replayed_by_another_worker",
    ],
    "A run starts with the code of the program that starts it.": [
        "start: a_run_starts_with_the_code_of_the_program_that_starts_it",
        "start: a_token_that_may_not_store_code_starts_what_is_stored_and_says_so_once",
        "start: a_token_that_may_not_store_unknown_code_is_told_what_to_do",
    ],
    "A schedule starts functions.": [
        "schedules: a_firing_starts_a_function_with_the_arguments_of_the_schedule",
        "schedules: a_function_that_waits_has_not_ended_for_its_schedule",
    ],
    "now, random and uuid are derived from the run.": [
        "steps: time_and_chance_follow_from_the_run"
    ],
    "changed is a patch marker.": [
        "waiting: a_marker_lets_old_runs_go_the_old_way_and_new_ones_the_new_way",
    ],
    "restart goes on as the same run with a new log.": [
        "waiting: a_restart_begins_again_under_the_same_run",
        "steering: a_restart_begins_a_new_log_and_keeps_signals_and_published_values",
    ],
    "once runs at most once.": [
        "steps: once_is_recorded_before_it_begins_and_never_runs_again",
        "steps: once_that_ended_is_not_run_again",
    ],
    "A received message is answered once.": [
        "waiting: a_message_is_received_and_answered_once",
        "steering: a_received_signal_is_answered_under_its_key",
    ],
    "A function knows that it is cancelled, and why.": [
        "versions: a_function_knows_why_it_was_cancelled",
    ],
    "Arguments and results are typed, under mypy and pyright.": [
        "typing: wrong_arguments_are_type_errors",
        "pyright: arguments_and_results_are_known_and_wrong_ones_are_errors",
    ],
}
IDENTITY = {
    "A step is known by scope, name and number; interleaving does not matter.": [
        "replay: a_replay_of_any_interleaving_gives_what_was_recorded",
        "rules: a_path_has_a_scope_and_a_name",
    ],
    "A key replaces the number; a scope has numbers of its own.": [
        "steps: keys_and_scopes_tell_equal_names_apart",
    ],
    "Two live tasks with one name in one scope are ambiguous, and both lines are named.": [
        "steps: two_tasks_with_one_name_in_one_scope_are_ambiguous_and_both_lines_are_named",
        "steps: a_name_is_ambiguous_only_while_both_tasks_live",
    ],
    "Completions are delivered in the order of their numbers, one at a time.": [
        "rules: ends_are_logged_in_the_order_in_which_they_come",
        "crashes: a_worker_may_die_at_every_await",
        "generated: a_replay_of_failures_undos_races_and_cancels_gives_what_was_recorded",
    ],
    "A replay begins no effect, and equals what was recorded.": [
        "replay: a_replay_of_any_interleaving_gives_what_was_recorded",
        "generated: a_replay_of_failures_undos_races_and_cancels_gives_what_was_recorded",
        "races: a_function_that_fails_races_or_is_cancelled_keeps_the_rules",
    ],
    "An error is the same when it is replayed.": [
        "steps: an_error_is_the_same_when_it_is_replayed",
        "steps: an_error_that_cannot_be_rebuilt_is_operation_failed_at_once",
    ],
}
DIVERGENCE = {
    "A known path with another kind diverges.": [
        "divergence: another_kind_under_a_known_path_diverges",
    ],
    "A new path while recorded ones of its scope are unvisited diverges, with both lines.": [
        "divergence: a_step_that_was_added_before_recorded_ones_diverges",
        "divergence: a_new_scope_beside_recorded_steps_does_not_diverge",
    ],
    "An end with unvisited paths diverges, and undoes nothing.": [
        "divergence: a_return_before_the_end_of_the_log_diverges",
        "divergence: an_error_before_the_end_of_the_log_diverges_and_undoes_nothing",
    ],
    "A diverged run is paused, neither failed nor retried, and shows both sides.": [
        "steering: a_divergence_pauses_the_run_and_says_what_differs",
        "pages: a_diverged_run_shows_both_sides_and_goes_on_with_the_new_code",
    ],
    "A worker with the old code takes it, the new code is accepted, or it is forked.": [
        "versions: a_worker_with_the_old_code_goes_on_with_a_diverged_run",
        "worker: accepting_new_code_repeats_no_step_that_it_asked_for",
        "steering: accepting_a_divergence_drops_what_the_new_code_does_not_do",
        "steering: a_fork_begins_with_what_came_before_an_operation",
        "results: a_fork_asks_again_for_what_had_not_ended_and_not_for_what_was_given_up",
    ],
    "Changed arguments of a finished step are marked, and diverge if strict.": [
        "divergence: other_arguments_are_noted_and_diverge_if_strict",
    ],
}
VERSIONS = {
    "The fingerprint is that of the normalised code, and its source is stored by version.": [
        "versions: comments_layout_and_descriptions_make_no_version_and_code_does",
        "versions: the_source_of_a_version_is_stored_with_its_first_line",
        "engine: the_same_fingerprint_and_options_are_the_same_version",
        "http: each_version_of_a_function_shows_its_source",
        "pages: versions_of_a_function_show_their_source_and_what_changed",
    ],
    "A pinned run requires the capability of its version.": [
        "steering: a_pinned_run_needs_a_worker_with_its_version",
        "worker: a_suspended_function_goes_on_in_the_memory_of_its_worker",
    ],
    "A worker that may not store its code says so, and serves on.": [
        "start: a_worker_that_may_not_store_a_function_logs_it_and_serves_on",
        "engine: a_worker_puts_functions_of_its_own_queues_only",
    ],
    "Open runs, or a sample of them, are replayed against new code before a deploy.": [
        "what_if: open_runs_are_replayed_before_a_deploy",
        "what_if: a_sample_of_the_open_runs_is_replayed",
    ],
}
DURABILITY = {
    "The result of a step is committed before the next effect begins.": [
        "steps: the_result_of_a_step_is_committed_before_the_next_effect_begins",
        "crashes: functions_keep_their_promises_under_drawn_crashes_and_cancels",
    ],
    "A committed step never runs again, whichever process dies.": [
        "replay: a_step_does_not_run_again_once_it_is_committed",
        "crashes: a_worker_may_die_at_every_await",
        "crashes: a_coordinator_may_die_before_and_after_every_commit",
        "kills: a_worker_killed_in_a_step_runs_only_that_step_again",
        "kills: a_worker_killed_between_steps_runs_the_uncommitted_one_again",
    ],
    "with_next lets a result travel with the next one.": [
        "steps: the_result_of_a_step_is_committed_before_the_next_effect_begins",
    ],
    "The last step and the return are one message.": [
        "steps: the_last_step_and_the_return_are_one_message",
    ],
    "The journal comes with the lease: nothing is read before a step.": [
        "host: a_function_reads_nothing_before_its_steps_unless_the_log_is_missing",
        "steering: a_long_log_is_read_instead_of_sent",
    ],
}
WAITING = {
    "A function that waits has no task, so no lease, slot or limit.": [
        "engine: a_function_that_sleeps_has_no_task_until_its_time_comes",
        "crashes: functions_keep_their_promises_under_drawn_crashes_and_cancels",
    ],
    "Its coroutine may stay in memory: 1,000 of them, the least recently used goes.": [
        "host: the_function_that_waited_longest_makes_room_for_another",
    ],
    "The resume prefers that worker, and needs no replay if the journal number matches.": [
        "engine: a_resumed_function_goes_to_the_worker_that_ran_it_if_that_has_room",
        "host: a_suspended_function_goes_on_in_memory_if_nothing_was_reported_meanwhile",
        "host: a_function_in_memory_is_replayed_if_its_run_is_elsewhere",
    ],
    "Any worker replays a function otherwise.": [
        "worker: a_function_is_replayed_by_another_worker",
        "replay: a_worker_may_take_over_at_every_entry_of_the_log",
        "kills: a_worker_killed_while_its_function_is_suspended_loses_nothing",
    ],
    "except Exception cannot swallow a suspension.": [
        "waiting: a_suspension_is_not_an_exception_that_a_function_may_swallow",
        "waiting: cleaning_up_in_a_suspended_function_runs_no_step",
    ],
    "N children wake their parent once.": [
        "engine: a_hundred_children_wake_their_parent_once",
        "waiting: a_hundred_operations_of_one_gather_wake_their_function_once",
    ],
    "Sleeps under a second are slept in place.": [
        "waiting: a_short_sleep_passes_in_the_worker_and_a_long_one_without_it",
    ],
}
FAILURES = {
    "A step is retried in place after a short wait, and by a timer after a long one.": [
        "steps: a_failed_step_is_tried_again_in_place_after_a_short_wait",
        "steps: a_long_wait_between_attempts_needs_no_worker",
    ],
    "Attempts of the function count crashes without progress.": [
        "engine: a_crash_after_progress_resumes_and_one_without_fails",
    ],
    "A cancelled function stops at its next await, after the step that runs.": [
        "waiting: a_cancelled_function_stops_undoes_and_says_so",
        "waiting: a_cancellation_waits_for_the_step_that_runs",
        "steering: a_waiting_function_is_resumed_to_undo_what_it_did",
    ],
    "Undos run in reverse as recorded steps, on failure and on cancel.": [
        "steps: undos_run_in_reverse_as_recorded_steps_when_a_function_fails",
        "generated: what_was_done_is_undone_in_reverse_wherever_a_worker_dies",
        "kills: a_worker_killed_in_an_undo_undoes_each_step_once_it_is_committed",
    ],
    "Failures of undos are reported with the original error, never instead of it.": [
        "steps: a_failed_undo_is_reported_with_the_error_and_not_instead_of_it",
    ],
    "A graph undoes a completed function by the task that its node names.": [
        "steering: a_graph_undoes_a_completed_function_by_the_task_of_its_node",
    ],
    "Force ends at once, and lists what was not undone.": [
        "steering: force_ends_at_once_and_lists_what_was_not_undone",
    ],
    "Signals are kept until asked for, in order, by name.": [
        "engine: an_event_is_kept_until_the_function_asks",
        "rules: signals_are_taken_in_order_by_name",
        "rules: a_signal_that_a_withdrawn_operation_had_taken_goes_to_the_next",
        "races: a_function_that_fails_races_or_is_cancelled_keeps_the_rules",
    ],
}
LIMITS = {
    "A run has 10,000 operations, with a warning at 5,000, and restart is the way out.": [
        "results: half_of_the_operations_are_a_warning_and_one_too_many_fails_the_run",
        "steering: too_many_operations_fail_the_run_and_name_the_way_out",
    ],
    "A result of more than 1 MiB is an artifact, which a crash does not lose.": [
        "host: a_result_of_more_than_a_mebibyte_is_an_artifact",
        "testing: a_large_result_is_an_artifact_that_the_run_has_before_the_function_goes_on",
        "results: a_reported_result_that_is_an_artifact_outlives_its_worker",
        "results: an_artifact_of_a_step_that_was_not_reported_goes_with_its_worker",
        "kills: a_worker_killed_beside_a_large_result_does_not_lose_it",
    ],
    "A map has 10,000 items.": ["results: a_map_has_at_most_ten_thousand_items"],
    "The streams of a run have a limit.": [
        "results: a_run_appends_at_most_so_many_values_to_its_streams",
    ],
    "A run of any size can be cancelled.": [
        "results: a_run_of_the_most_operations_can_be_cancelled",
    ],
}
JOURNAL = {
    "A function is a run, and its report is one journal entry in one commit.": [
        "engine: a_function_runs_as_an_ordinary_task_and_ends_its_run",
        "engine: a_report_is_one_journal_entry_and_one_commit",
    ],
    "A report counts once, after what it follows, and under the current fence.": [
        "engine: a_repeated_report_counts_once_and_a_gap_is_refused",
        "engine: a_report_under_an_old_fence_is_refused",
        "engine: another_incarnation_cannot_report",
    ],
    "The same events lead to the same decisions.": [
        "rules: any_interleaving_with_crashes_and_repeats_leads_to_one_outcome",
        "races: a_function_that_fails_races_or_is_cancelled_keeps_the_rules",
        "steering: a_run_that_is_not_in_memory_is_replayed",
    ],
    "Graph and pages are projections by name and scope.": [
        "http: a_function_is_drawn_by_the_names_and_scopes_of_its_operations",
        "pages: a_function_is_drawn_by_scope_with_a_map_as_one_stacked_node",
    ],
    "What-if: other answers, a debugger, and calls past the log that are named and not run.": [
        "what_if: a_run_is_replayed_and_past_its_log_the_next_call_is_named",
        "what_if: a_replaced_answer_shows_what_the_function_would_do",
        "what_if: a_function_is_stepped_through_with_recorded_answers",
    ],
    "Users' tests have fakes and a clock, and fail for functions that are not deterministic.": [
        "testing: a_function_runs_with_fakes_and_signals",
        "testing: the_clock_of_a_test_ends_a_sleep_of_days",
        "testing: a_function_that_is_not_deterministic_fails_its_test",
    ],
    "The replay of 1,000 steps takes less than a tenth of a second.": [
        "replay: a_thousand_recorded_steps_are_replayed_in_a_tenth_of_a_second",
    ],
}
SEMANTICS: dict[str, list[str]] = {
    **API,
    **IDENTITY,
    **DIVERGENCE,
    **VERSIONS,
    **DURABILITY,
    **WAITING,
    **FAILURES,
    **LIMITS,
    **JOURNAL,
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / FILES[file]).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.parametrize("sentence", SEMANTICS)
def test_a_sentence_of_the_semantics_is_held_by_tests_that_exist(sentence: str) -> None:
    named = [one.split(": ") for one in SEMANTICS[sentence]]

    assert named
    assert [name for file, name in named if f"test_{name}" not in names_in(file)] == []


def test_every_file_of_the_table_is_used() -> None:
    used = {one.split(": ")[0] for tests in SEMANTICS.values() for one in tests}

    assert used == FILES.keys()
