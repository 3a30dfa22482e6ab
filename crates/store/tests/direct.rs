//! Every back end that keeps direct operations under its part of the conformance suite.

mod suite;

macro_rules! case {
    ($factory:ty: $area:ident: $($case:ident)*) => {
        mod $area {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::suite::direct::$area::$case::<$factory>().await;
                }
            )*
        }
    };
}

macro_rules! conformance {
    ($name:ident: $factory:ty) => {
        mod $name {
            case!($factory: beginning:
                a_call_is_on_record_before_it_is_sent
                a_claim_waits_and_is_dispatched_by_its_owner_alone
                what_was_never_sent_is_taken_up
                what_may_have_been_sent_is_never_sent_again
                an_equal_call_gets_the_kept_answer
                another_request_or_principal_conflicts_alike
                a_record_is_compared_under_its_own_key
                of_many_callers_one_sends
            );
            case!($factory: joining:
                what_is_unanswered_is_joined
                a_background_lookup_opens_no_door
                what_was_answered_is_never_joined
                operations_with_ids_are_joined_too
                what_is_too_old_is_not_joined
                what_must_not_join_begins
                a_wanted_repeat_is_made_once
                a_repeat_of_what_is_not_ones_own_tells_nothing
                a_joined_claim_is_taken_up
            );
            case!($factory: legs:
                a_question_settles_nothing
                each_request_is_sent_once
                an_answered_request_gets_its_own_answer_again
                changed_answers_conflict
                what_nobody_asked_for_fits_nothing
                questions_without_end_are_stopped
                an_unsent_request_is_asked_for_again
                a_question_that_is_left_alone_is_in_doubt
                a_question_that_cannot_be_kept_is_none
            );
            case!($factory: ending:
                every_report_of_the_holder_has_its_end
                what_was_handed_back_may_be_sent_at_once
                what_was_withdrawn_is_over
                the_fence_decides_and_not_the_time
                a_late_answer_settles_what_is_in_doubt
                a_late_answer_reaches_whoever_has_it_now
                a_late_answer_against_a_settled_operation_is_told
                what_cannot_be_kept_is_settled_all_the_same
                reports_are_decided_one_by_one
                a_lease_is_prolonged_by_its_holder_alone
            );
            case!($factory: telling:
                only_an_answer_can_be_told
                what_was_told_in_vain_is_unanswered_again
                a_slot_that_was_taken_meanwhile_stays_taken
                a_note_is_kept_although_its_call_is_refused
            );
            case!($factory: looking:
                what_may_have_been_sent_is_in_doubt
                what_was_never_sent_is_settled_after_a_day
                many_are_moved_in_parts
                what_is_found_settles
                absence_proves_from_its_time_on
                what_is_not_there_is_no_error
            );
            case!($factory: keeping:
                answers_age_and_doubt_does_not
                tombstones_of_the_past_are_forgotten_whole
                what_was_answered_is_not_unsettled
                an_operators_word_settles_what_nobody_sends
                a_cancellation_is_noted_once_for_each_request
                a_closed_ledger_takes_nothing
            );
        }
    };
}

conformance!(memory: crate::suite::factories::Memory);
conformance!(sqlite: crate::suite::factories::Sqlite);
