//! The client's side of a process that accepts: many calls at a time, each answered or lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::oneshot;

use crate::process::Pipes;

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is in the outbox.
    Accepted,
    /// Nothing was written, and why; the same call may be sent again.
    Refused(String),
    /// No answer: the process died, or is about to.
    Lost,
}

type Waiting = HashMap<u64, oneshot::Sender<String>>;

/// A process that accepts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Front {
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    /// Who waits for an answer; `None` once there is none to come.
    waiting: Arc<Mutex<Option<Waiting>>>,
    next: Arc<AtomicU64>,
}

impl Front {
    /// Over the pipes of such a process.
    #[must_use]
    pub fn new(pipes: Pipes) -> Self {
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        tokio::spawn(hand_out(pipes.output, Arc::clone(&waiting)));
        let input = Arc::new(tokio::sync::Mutex::new(Some(pipes.input)));
        Self { input, waiting, next: Arc::default() }
    }

    /// Asks for one operation of a connector.
    pub async fn accept(&self, connector: &str, id: &str) -> Taken {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let (told, answer) = oneshot::channel();
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(waiting) => waiting.insert(number, told),
            None => return Taken::Lost,
        };
        let line = format!("{number} {connector} {id}\n");
        {
            let mut input = self.input.lock().await;
            let Some(input) = input.as_mut() else { return Taken::Lost };
            if input.write_all(line.as_bytes()).await.is_err() || input.flush().await.is_err() {
                return Taken::Lost;
            }
        }
        match answer.await {
            Ok(word) if word == "fresh" || word == "duplicate" => Taken::Accepted,
            Ok(refused) => Taken::Refused(refused),
            Err(_) => Taken::Lost,
        }
    }

    /// Lets the process end.
    pub async fn close(&self) {
        self.input.lock().await.take();
    }
}

async fn hand_out(output: ChildStdout, waiting: Arc<Mutex<Option<Waiting>>>) {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some((number, word)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let told = lock().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(told) = told {
            // A caller that left wants no answer.
            let _ = told.send(word.to_owned());
        }
    }
    // Whoever still waits learns that nothing comes.
    lock().take();
}
