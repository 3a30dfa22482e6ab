//! Every back end with an outbox under its part of the conformance suite.

mod suite;

macro_rules! case {
    ($factory:ty: $area:ident: $($case:ident)*) => {
        mod $area {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::suite::outbox::$area::$case::<$factory>().await;
                }
            )*
        }
    };
}

macro_rules! conformance {
    ($name:ident: $factory:ty) => {
        mod $name {
            case!($factory: accepting:
                an_accepted_call_is_kept_whole
                a_repeat_gets_the_item_as_it_is_now
                what_was_accepted_is_frozen
                another_request_or_principal_conflicts_alike
                a_local_operation_is_no_delivery
                the_revoked_have_nothing_accepted
                of_many_callers_one_makes_the_item
                a_settled_delivery_expires_and_an_open_one_never
            );
            case!($factory: claiming:
                what_is_due_is_leased_once_the_earliest_first
                of_many_workers_each_item_has_one
                a_lease_that_ended_is_taken_back
                what_was_under_way_when_its_lease_ended_may_be_done
                only_the_holder_begins_to_send
                a_beginning_is_recorded_before_the_first_byte
                the_fence_decides_and_not_the_time
                what_is_handed_back_cost_nothing
                what_comes_too_late_is_settled_and_not_sent
                a_key_that_ended_since_the_claim_is_not_used
                lapsed_items_of_every_target_are_taken_back
                when_to_ask_again_is_told
                a_batch_is_decided_one_by_one
            );
            case!($factory: outcomes:
                what_the_target_did_settles_the_operation
                an_answer_too_large_to_keep_is_an_answer
                an_unknown_attempt_outlives_every_later_refusal
                refusals_alone_prove_that_nothing_was_done
                the_contract_decides_after_an_unknown_attempt
                a_key_is_used_no_longer_than_it_is_remembered
                the_key_of_a_proved_refusal_never_ends
                a_target_that_knows_the_key_otherwise_is_left_to_people
                a_pause_that_was_asked_for_is_kept
                a_late_answer_that_it_was_done_settles_the_operation
                a_late_answer_settles_what_people_have_not
                a_late_answer_that_it_was_not_done_settles_nothing
                a_late_answer_against_a_settled_operation_is_told
                a_late_contradiction_has_one_way_out
                a_report_sent_again_changes_nothing
            );
            case!($factory: searching:
                one_match_is_the_effect
                many_matches_are_never_sent_again
                absence_proves_from_its_time_on
                a_lost_worker_may_write_until_its_lease_ends
                absence_without_a_time_proves_nothing
                an_open_search_is_made_again
                a_proof_after_the_last_attempt_leaves_a_dead_letter
            );
            case!($factory: ordering:
                every_order_is_taken_or_refused_by_what_may_have_happened
                a_redrive_grants_new_attempts_for_the_same_request
                a_withdrawn_item_is_settled_with_a_result
                an_order_on_many_is_decided_one_by_one
                an_operators_word_settles_what_nobody_sends
                what_was_withdrawn_while_a_worker_had_it_is_refused
            );
            case!($factory: targets:
                a_parked_target_is_tried_with_one_item_at_a_time
                a_target_is_parked_apart_from_the_others
                a_pause_stops_everything_and_a_resume_tries_at_once
                a_pause_holds_for_what_a_worker_has_already
                a_target_that_nobody_knows_yet_can_be_paused
                a_probe_of_an_open_breaker_burns_no_attempt
                items_of_targets_that_are_gone_wait_for_them
                only_what_its_reason_parked_is_released
                the_revoked_are_stopped_before_the_first_byte
                whoever_is_revoked_twice_is_restored_twice
                who_is_revoked_is_told
                what_is_under_way_at_a_revocation_is_believed
                one_item_is_held_back_by_its_holder_alone
                a_refusal_of_one_item_opens_the_target
            );
            case!($factory: asking:
                pages_hold_every_item_once_and_the_newest_first
                a_list_holds_what_was_asked_for
                an_item_is_found_by_its_operation
                a_request_is_read_as_it_was_frozen
                counts_tell_what_is_where_and_since_when
                a_closed_outbox_takes_nothing
            );
            case!($factory: trail:
                every_way_of_an_item_is_on_record
                an_event_says_who_and_why
                a_call_taken_back_leaves_its_delivery_alone
            );
        }
    };
}

conformance!(memory: crate::suite::factories::Memory);
conformance!(sqlite: crate::suite::factories::Sqlite);
