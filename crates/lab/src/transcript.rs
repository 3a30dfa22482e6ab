//! Raw transcripts: every frame of a connection, byte for byte, in the order in which it passed.
//!
//! One JSON object a line: `{"from": "client" | "server", "at": N, "utf8": "…"}`, with `base64` in
//! place of `utf8` where the bytes are not UTF-8. `at` counts the frames of both directions from 1.
//! A frame has no line end; one that was cut short by the end of its stream has `"whole": false`.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The client: what the server reads.
    Client,
    /// The server: what it wrote.
    Server,
}

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    from: Side,
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    utf8: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    whole: bool,
}

impl Line {
    /// As JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let text = self.utf8.as_deref().unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    /// The same with another text, where it is text.
    #[must_use]
    pub fn map_text(self, map: impl FnOnce(&str) -> String) -> Self {
        Self { utf8: self.utf8.map(|text| map(&text)), ..self }
    }
}

const fn whole() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_whole(whole: &bool) -> bool {
    *whole
}

/// A frame as it passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Who sent it.
    pub from: Side,
    /// Its bytes, without the line end.
    pub bytes: Vec<u8>,
    /// Whether it ended with a line feed.
    pub whole: bool,
}

impl Frame {
    /// As JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }
}

/// A transcript that is being written. Clones write into one file.
#[derive(Debug, Clone)]
pub struct Transcript(Arc<Mutex<(File, u64)>>);

impl Transcript {
    /// Begins a new file.
    ///
    /// # Errors
    /// If the file exists or cannot be written: evidence is never overwritten.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .with_context(|| format!("cannot begin the transcript {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new((file, 0)))))
    }

    /// Keeps one frame, given with its line end if it has one. It is in the file when this returns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, from: Side, frame: &[u8]) -> anyhow::Result<()> {
        let (bytes, whole) = match frame.split_last() {
            Some((b'\n', bytes)) => (bytes, true),
            _ => (frame, false),
        };
        let utf8 = std::str::from_utf8(bytes).ok().map(str::to_owned);
        let base64 = utf8.is_none().then(|| STANDARD.encode(bytes));
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.1 += 1;
        let line = Line { from, at: guard.1, utf8, base64, whole };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        guard.0.write_all(text.as_bytes()).context("cannot write the transcript")
    }
}

/// Reads a transcript back.
///
/// # Errors
/// If the file is not a transcript.
pub fn read(path: &Path) -> anyhow::Result<Vec<Frame>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the transcript {}", path.display()))?;
    text.lines().map(frame).collect()
}

fn frame(line: &str) -> anyhow::Result<Frame> {
    let line: Line = serde_json::from_str(line).context("not a line of a transcript")?;
    let bytes = match (line.utf8, line.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text)?,
        _ => anyhow::bail!("a line has either utf8 or base64"),
    };
    Ok(Frame { from: line.from, bytes, whole: line.whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        // Promise: a transcript is evidence, whatever bytes passed.
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.jsonl");
        let transcript = Transcript::create(&path).expect("new");
        let sent: [(Side, &[u8]); 4] = [
            (Side::Client, b"{\"id\":1}\n"),
            (Side::Server, b"\xff\x00\n"),
            (Side::Client, b"\n"),
            (Side::Server, "ends in mid-frame é".as_bytes()),
        ];
        for (from, bytes) in sent {
            transcript.keep(from, bytes).expect("written");
        }
        let kept = read(&path).expect("a transcript");
        assert_eq!(kept.len(), sent.len());
        for (frame, (from, bytes)) in kept.iter().zip(sent) {
            let end: &[u8] = if frame.whole { b"\n" } else { b"" };
            assert_eq!((frame.from, [&frame.bytes[..], end].concat()), (from, bytes.to_vec()));
        }
        assert_eq!(kept[0].json()["id"], 1);
        assert!(Transcript::create(&path).is_err(), "evidence is not overwritten");
    }
}
