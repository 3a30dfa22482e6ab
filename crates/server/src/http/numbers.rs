//! Our own numbers for the requests of one session, and the way back to the client's IDs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};

/// Answered requests that are remembered, in count: a client may ask for their answers again.
const ANSWERED_COUNT: usize = 256;

/// The numbers of one session. A number is never used twice.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<Given>);

#[derive(Debug, Default)]
struct Given {
    last: i64,
    ids: HashMap<i64, RequestId>,
    /// Those of `ids` that were answered, the oldest first.
    answered: VecDeque<i64>,
}

impl Numbers {
    /// A number for a request with the client's `id`.
    pub(super) fn give(&self, id: RequestId) -> RequestId {
        let mut given = self.lock();
        given.last += 1;
        let number = given.last;
        given.ids.insert(number, id);
        RequestId::Number(number)
    }

    /// Forgets the requests with the client's `id` that were not answered, and tells their
    /// numbers: the SDK never answers what was cancelled.
    pub(super) fn cancel(&self, id: &RequestId) -> Vec<RequestId> {
        let given = &mut *self.lock();
        let open = given
            .ids
            .iter()
            .filter(|(number, known)| *known == id && !given.answered.contains(number));
        let numbers: Vec<i64> = open.map(|(number, _)| *number).collect();
        for number in &numbers {
            given.ids.remove(number);
        }
        numbers.into_iter().map(RequestId::Number).collect()
    }

    /// The message with the client's ID in it; `None` for an answer that nobody waits for.
    pub(super) fn restore(
        &self,
        mut message: Arc<ServerJsonRpcMessage>,
    ) -> Option<Arc<ServerJsonRpcMessage>> {
        let number = match &*message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(number) = number else { return Some(message) };
        let RequestId::Number(number) = number else { return None };
        let id = self.lock().answer(*number)?;
        match Arc::make_mut(&mut message) {
            JsonRpcMessage::Response(response) => response.id = id,
            JsonRpcMessage::Error(error) => error.id = Some(id),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        Some(message)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Given {
    fn answer(&mut self, number: i64) -> Option<RequestId> {
        let id = self.ids.get(&number).cloned()?;
        if !self.answered.contains(&number) {
            self.answered.push_back(number);
            if self.answered.len() > ANSWERED_COUNT
                && let Some(oldest) = self.answered.pop_front()
            {
                self.ids.remove(&oldest);
            }
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ErrorData, JsonRpcError};

    use super::*;

    fn answer(id: Option<RequestId>) -> Arc<ServerJsonRpcMessage> {
        let error = ErrorData::internal_error("x", None);
        Arc::new(JsonRpcMessage::Error(JsonRpcError::new(id, error)))
    }

    #[test]
    fn equal_ids_never_get_each_others_answers() {
        // Promise: two requests with one ID are two, and each answer has its own ID's type.
        let numbers = Numbers::default();
        let text = RequestId::String("1".into());
        let one = RequestId::Number(1);
        let given = [&one, &text, &one, &text].map(|id| numbers.give(id.clone()));
        assert!(given[0] != given[1] && given[1] != given[2] && given[0] != given[2]);
        let back = |number: &RequestId| {
            let restored = numbers.restore(answer(Some(number.clone())))?;
            let JsonRpcMessage::Error(error) = &*restored else { panic!("it stays an error") };
            error.id.clone()
        };
        assert_eq!(back(&given[0]), Some(one.clone()));
        assert_eq!(back(&given[1]), Some(text.clone()));
        assert_eq!(back(&RequestId::Number(99)), None);
        assert_eq!(back(&text), None);
        assert!(numbers.restore(answer(None)).is_some(), "an error without an ID passes");
        assert_eq!(numbers.cancel(&one), [given[2].clone()], "the other one is answered");
        assert_eq!(back(&given[2]), None, "a cancelled request has no answer");
        assert_eq!(back(&given[0]), Some(one.clone()), "asked for again");
        for _ in 0..2 * ANSWERED_COUNT {
            assert!(back(&numbers.give(one.clone())).is_some());
        }
        assert_eq!(back(&given[0]), None, "long ago");
        assert_eq!(back(&given[3]), Some(text), "still under way");
    }
}
