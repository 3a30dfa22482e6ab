//! Every back end under the conformance suite.

mod suite;

use suite::Factory;

macro_rules! case {
    ($factory:ty: $area:ident: $($case:ident)*) => {
        mod $area {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::suite::$area::$case::<$factory>().await;
                }
            )*
        }
    };
}

macro_rules! conformance {
    ($name:ident: $factory:ty) => {
        mod $name {
            case!($factory: admission:
                a_fresh_call_keeps_everything_that_it_is_bound_to
                an_exact_repeat_gets_the_stored_result
                a_changed_request_conflicts_and_learns_nothing
                a_conflict_is_told_before_progress
                tenants_never_meet
                after_retention_the_id_is_refused_for_ever
                retention_counts_from_settlement
                authority_ends_for_new_work_and_for_replay
                ids_that_carry_their_time_are_held_to_it
                an_effect_without_a_row_is_an_effect
                ids_are_taken_as_they_are_given
            );
            case!($factory: rollback:
                a_failed_effect_leaves_nothing_and_the_same_id_applies_once
                the_error_names_the_effects_reason
                a_result_is_kept_to_the_byte
                what_no_declared_table_takes_is_refused
                an_append_only_table_only_grows
                a_row_key_is_never_used_twice
                any_text_is_kept
                an_error_that_an_effect_handles_is_its_own
            );
            case!($factory: finishing:
                a_first_step_commits_alone_and_is_owned
                each_ending_is_told_as_it_was
                a_failed_compensation_has_an_identity_of_its_own
                only_the_fence_decides_who_finishes
                what_was_never_begun_is_not_finished
            );
            case!($factory: resolving:
                an_unfinished_operation_is_settled_as_said
                an_owner_is_left_to_work
                a_row_that_stands_needs_a_proof_against_it
                a_row_that_is_gone_was_not_applied
                a_settled_row_that_is_gone_is_not_replayed
                what_is_settled_stays_settled
                nothing_is_made_of_nothing
            );
            case!($factory: cancelling:
                a_call_taken_back_is_on_record_and_settles_all_the_same
                only_the_callers_own_operation_is_noted
            );
            case!($factory: keys:
                a_ledger_knows_its_keys_again
                a_key_is_missed_while_records_need_it
                a_record_is_compared_under_its_own_key
                a_ledger_says_what_it_is
            );
            case!($factory: listing:
                pages_hold_every_operation_once_and_the_newest_first
                a_list_holds_what_was_asked_for_and_nothing_else
                a_list_says_what_the_status_says
                a_key_is_needed_until_its_last_record_is_out_of_retention
            );
            case!($factory: times:
                a_clock_set_ahead_and_back_turns_no_time_back
                time_goes_on_at_its_pace_behind_a_slow_clock
                reading_moves_no_time
                a_probe_proves_a_commit_and_the_counts_tell_what_is_open
            );
            case!($factory: retention:
                a_result_goes_and_its_tombstone_stays
                what_is_not_settled_never_expires
                a_tombstone_goes_only_if_its_id_tells_its_age
                a_purge_is_done_in_bounded_steps
                a_clock_a_year_ahead_and_back_purges_nothing
                the_horizon_follows_time_that_passed
                counting_writes_nothing
            );
            case!($factory: concurrency:
                of_many_callers_with_one_id_one_makes_the_effect
                each_of_many_ids_takes_effect_once
                a_caller_that_leaves_undoes_nothing
                a_call_that_was_never_begun_does_nothing
                closing_keeps_what_was_handed_over_and_takes_no_more
            );

            #[test]
            fn capabilities() {
                // Promise: what a back end cannot do is said, not skipped in silence.
                use crate::Factory;
                eprintln!("{}: {:?}", <$factory>::NAME, <$factory>::CAPABILITIES);
            }
        }
    };
}

conformance!(memory: crate::suite::factories::Memory);
conformance!(sqlite: crate::suite::factories::Sqlite);
