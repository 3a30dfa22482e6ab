//! Newline-delimited frames, read within a byte limit.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::scan::{Envelope, Scanner};

/// Read in chunks of this many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// One line of input, without its line end.
#[derive(Debug)]
pub(crate) enum Frame {
    Line(Vec<u8>),
    /// A line past the limit: not kept, only scanned for what a reply needs.
    Oversized {
        size_bytes: u64,
        envelope: Envelope,
    },
}

/// Splits a byte stream into frames.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    input: BufReader<R>,
    max_bytes: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(input: R, max_bytes: usize) -> Self {
        Self { input: BufReader::with_capacity(CHUNK_BYTES, input), max_bytes }
    }

    /// The next line, or `None` at the end of input. A last line without its line end counts: JSON
    /// shows by itself whether it is whole.
    ///
    /// Holds at most the limit plus one chunk. Not cancel-safe.
    ///
    /// # Errors
    ///
    /// Only if reading fails.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut line = Vec::new();
        let mut oversized: Option<(u64, Scanner)> = None;
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(finish(line, oversized).filter(|frame| !frame.is_empty()));
            }
            let newline = memchr::memchr(b'\n', chunk);
            let part = &chunk[..newline.unwrap_or(chunk.len())];
            match &mut oversized {
                Some((size_bytes, scanner)) => {
                    *size_bytes += part.len() as u64;
                    scanner.push(part);
                }
                None if line.len() + part.len() > self.max_bytes => {
                    let mut scanner = Scanner::default();
                    scanner.push(&line);
                    scanner.push(part);
                    oversized = Some(((line.len() + part.len()) as u64, scanner));
                    line = Vec::new();
                }
                None => line.extend_from_slice(part),
            }
            let consumed = part.len() + usize::from(newline.is_some());
            self.input.consume(consumed);
            if newline.is_some() {
                return Ok(finish(line, oversized));
            }
        }
    }
}

impl Frame {
    fn is_empty(&self) -> bool {
        matches!(self, Frame::Line(line) if line.is_empty())
    }
}

fn finish(line: Vec<u8>, oversized: Option<(u64, Scanner)>) -> Option<Frame> {
    Some(match oversized {
        Some((size_bytes, scanner)) => Frame::Oversized { size_bytes, envelope: scanner.finish() },
        None => Frame::Line(line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(input: &[u8], max_bytes: usize) -> Vec<String> {
        let mut reader = FrameReader::new(input, max_bytes);
        let mut seen = Vec::new();
        while let Some(frame) = reader.next().await.expect("a slice never fails") {
            seen.push(match frame {
                Frame::Line(line) => String::from_utf8(line).expect("test input"),
                Frame::Oversized { size_bytes, envelope } => {
                    format!("{size_bytes} bytes, id {}", envelope.id.expect("test input"))
                }
            });
        }
        seen
    }

    #[tokio::test]
    async fn a_line_at_the_limit_is_read_and_one_past_it_is_skipped() {
        // Promise: the byte limit is exact, and the line after an over-long one is read whole.
        let at = r#"{"id":1,"xxxxxxxx":1}"#;
        let past = r#"{"xxxxxxxxx":1,"id":2}"#;
        let input = format!("{at}\n{past}\n\n{at}");
        let expected = [at, "22 bytes, id 2", "", at];
        assert_eq!(frames(input.as_bytes(), at.len()).await, expected);
    }

    #[tokio::test]
    async fn a_line_of_many_chunks_is_skipped_to_its_end() {
        // Promise: an over-long line costs no memory and its ID is found, even behind the bulk.
        let bulk = "x".repeat(5 * CHUNK_BYTES);
        let input = format!("{{\"params\":\"{bulk}\",\"id\":\"a\"}}\nnext\n");
        let size_bytes = input.len() - 6;
        let expected = [format!("{size_bytes} bytes, id \"a\""), "next".to_owned()];
        assert_eq!(frames(input.as_bytes(), 1000).await, expected);
    }
}
