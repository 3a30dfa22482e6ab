//! A change in the making: the moves that the steps are put together from.

use std::time::Duration;

use crate::delivery::event::{Alarm, Change, TargetChange};
use crate::delivery::item::{Delivery, State};
use crate::delivery::outcome::ErrorClass;
use crate::operation::{self, Outcome};
use crate::record::StoredResult;
use crate::retry::{backoff, pause_asked_for};
use crate::time::Timestamp;

/// A change in the making.
pub(super) struct Draft {
    pub(super) from: Delivery,
    pub(super) to: Delivery,
    pub(super) now: Timestamp,
    pub(super) operation: Option<operation::Event>,
    pub(super) result: Option<StoredResult>,
    pub(super) audit: Option<&'static str>,
    pub(super) words: Option<String>,
    pub(super) target: Option<TargetChange>,
    pub(super) alarm: Option<Alarm>,
    pub(super) fenced: bool,
    pub(super) keep_state: bool,
}

impl Draft {
    pub(super) fn of(item: &Delivery, now: Timestamp) -> Self {
        let mut to = item.clone();
        to.updated_at = now;
        Self {
            from: item.clone(),
            to,
            now,
            operation: None,
            result: None,
            audit: None,
            words: None,
            target: None,
            alarm: None,
            fenced: false,
            keep_state: false,
        }
    }

    /// The holder itself says that its request has ended: nobody writes any more.
    pub(super) fn settle_send(&mut self, item: &Delivery, now: Timestamp) {
        let own = item.lease.map(|lease| lease.until);
        if item.last_send_until == own {
            self.to.last_send_until = Some(now);
        }
    }

    /// The attempt cost nothing and proved nothing of the item.
    pub(super) fn uncount(&mut self) {
        self.to.attempts_count = self.to.attempts_count.saturating_sub(1);
    }

    pub(super) fn is_exhausted(&self, next: Timestamp) -> bool {
        self.to.attempts_count >= self.to.attempt_limit || self.to.is_past(next)
    }

    pub(super) fn audit(mut self, kind: &'static str) -> Self {
        self.audit = Some(kind);
        self
    }

    pub(super) fn fail(mut self, class: ErrorClass, words: String) -> Self {
        self.words = Some(format!("{}: {words}", class.as_str()));
        self.to.last_error = Some((class, words));
        self
    }

    pub(super) fn queue_at(mut self, due: Timestamp) -> Self {
        self.to.state = State::Queued;
        self.to.lease = None;
        self.to.park = None;
        self.to.next_attempt_at = Some(due);
        self
    }

    /// Another attempt after a pause, or the end of the attempts.
    pub(super) fn retry(
        self,
        class: ErrorClass,
        words: String,
        asked: Option<Duration>,
        seed: u64,
    ) -> Change {
        let terms = self.to.terms;
        let tries = self.to.attempts_count.max(1) - 1;
        let own = backoff(terms.backoff_base, terms.backoff_cap, tries, seed);
        let due = self.now.plus(own.max(asked.unwrap_or_default()));
        if self.is_exhausted(due) {
            return self.give_up(class, words);
        }
        let pause_ms = due.since(self.now).as_millis();
        let mut draft = self.fail(class, words).queue_at(due).audit("retry_scheduled");
        draft.words = draft.words.map(|words| format!("{words}; next attempt in {pause_ms} ms"));
        draft.done()
    }

    pub(super) fn lookup_pause(&self, asked: Option<Duration>, seed: u64) -> Duration {
        let terms = self.to.terms;
        let tries = self.to.lookups_count.max(1) - 1;
        let own = backoff(terms.backoff_base, terms.backoff_cap, tries, seed);
        let asked =
            asked.map_or(Duration::ZERO, |after| pause_asked_for(after, terms.backoff_cap).pause);
        own.max(asked)
    }

    /// Another search, or the end of the searches.
    pub(super) fn look_again(self, due: Timestamp, words: String) -> Change {
        if self.to.lookups_count >= self.to.terms.max_attempts_count {
            return self.leave_to_people(ErrorClass::LookupOpen, words);
        }
        self.fail(ErrorClass::LookupOpen, words).queue_at(due).audit("lookup_open").done()
    }

    /// No attempt is left. Searches may be.
    pub(super) fn give_up(self, class: ErrorClass, words: String) -> Change {
        if self.to.unknown_count > 0 && self.to.terms.contract.has_lookup() {
            let due = self.now.plus(self.to.terms.backoff_base);
            return self.fail(class, words).queue_at(due).audit("lookup_scheduled").done();
        }
        self.leave_to_people(class, words)
    }

    /// What can be sent again safely is a dead letter; what cannot is in doubt.
    pub(super) fn leave_to_people(self, class: ErrorClass, words: String) -> Change {
        if !self.to.may_send(self.now) {
            return self.in_doubt(class, words);
        }
        let mut draft = self.fail(class, words);
        draft.end(State::DeadLetter);
        draft.alarm = Some(Alarm::DeadLetter);
        draft.audit("dead_letter").done()
    }

    pub(super) fn in_doubt(self, class: ErrorClass, words: String) -> Change {
        let mut draft = self.fail(class, words);
        draft.end(State::InDoubt);
        draft.operation = Some(operation::Event::Learn(Outcome::Unknown));
        draft.alarm = Some(Alarm::InDoubt);
        draft.audit("in_doubt").done()
    }

    pub(super) fn deliver(
        mut self,
        external_id: Option<String>,
        result: StoredResult,
        kind: &'static str,
    ) -> Change {
        self.end(State::Delivered);
        self.to.external_id = external_id;
        self.operation = Some(operation::Event::Learn(Outcome::Applied));
        self.result = Some(result);
        self.target = Some(TargetChange::Open);
        self.audit(kind).done()
    }

    pub(super) fn end(&mut self, state: State) {
        self.to.state = state;
        self.to.lease = None;
        self.to.park = None;
        self.to.next_attempt_at = None;
    }

    pub(super) fn done(mut self) -> Change {
        if self.keep_state {
            self.to.state = self.from.state;
        }
        Change {
            delivery: self.to,
            operation: self.operation,
            result: self.result,
            audit: self.audit,
            words: self.words,
            target: self.target,
            alarm: self.alarm,
            fenced: self.fenced,
        }
    }
}
