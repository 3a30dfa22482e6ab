//! Logs: to stderr only, and never with an argument or a result in them.
//!
//! The SDK and other libraries print whole messages in their events, at `warn` too. So no filter
//! that a user can set lets their events through: only our own are written, and those hold IDs,
//! states and times.

use std::io;

use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::output;

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter's text means nothing.
    #[error(
        "the log filter `{filter}` cannot be used: {cause}; give a level (off, error, warn, info, \
         debug, trace), or such as counterfoil_store=debug,warn"
    )]
    Filter {
        /// The text.
        filter: String,
        /// The parser's words.
        cause: String,
    },
    /// The process logs already.
    #[error("logging was begun twice in one process: {0}")]
    Twice(#[from] TryInitError),
}

/// Begins to log what `filter` lets through, at `warn` and above if it is absent.
///
/// # Errors
/// [`LoggingError`].
pub fn init(filter: Option<&str>) -> Result<(), LoggingError> {
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(output::stderr_has_colour())
        .with_filter(parse(filter)?.and(filter_fn(|event| is_ours(event.target()))));
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(())
}

/// Makes a panic one line on stderr. Words that were put together at run time may hold an
/// argument, so only those that stand in the source are shown.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or("an unknown place".into(), ToString::to_string);
        let words = match panic.payload().downcast_ref::<&'static str>() {
            Some(words) => words,
            None => "its words may hold values and are not shown",
        };
        output::note(format_args!(
            "error: internal error at {place}: {words}; please report this line"
        ));
        let backtrace = std::backtrace::Backtrace::capture();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            output::note(backtrace);
        }
    }));
}

fn parse(filter: Option<&str>) -> Result<EnvFilter, LoggingError> {
    let filter = filter.map(str::trim).filter(|filter| !filter.is_empty()).unwrap_or("warn");
    EnvFilter::try_new(filter).map_err(|cause| LoggingError::Filter {
        filter: filter.to_owned(),
        cause: cause.to_string(),
    })
}

/// Our crates are `counterfoil` and `counterfoil_*`.
fn is_ours(target: &str) -> bool {
    let root = target.split("::").next().unwrap_or_default();
    root == "counterfoil" || root.starts_with("counterfoil_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test thread panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_filter_lets_a_librarys_events_through() {
        // Promise: what a library prints of a message never reaches the log, whatever is set.
        let cases = [
            ("trace", true),
            ("rmcp=trace", false),
            ("rmcp::service=trace,trace", true),
            ("off,rmcp=error", false),
        ];
        for (filter, shows_ours) in cases {
            let sink = Sink::default();
            let writer = sink.clone();
            let layer =
                tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_filter(
                    parse(Some(filter))
                        .expect("good")
                        .and(filter_fn(|event| is_ours(event.target()))),
                );
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::error!(target: "rmcp::service", argument = "sentinel", "response error");
                tracing::error!(target: "counterfoilx", "sentinel");
                tracing::error!(target: "counterfoil_store::sqlite", "ours");
            });
            let text = String::from_utf8(sink.0.lock().expect("unpoisoned").clone()).expect("text");
            assert!(!text.contains("sentinel"), "{filter}: {text}");
            assert_eq!(text.contains("ours"), shows_ours, "{filter}: {text}");
        }
    }

    #[test]
    fn a_filter_that_means_nothing_is_refused() {
        // Promise: a misspelt level does not silently log nothing.
        let error = parse(Some("counterfoil=loud")).expect_err("no level").to_string();
        assert!(error.contains("`counterfoil=loud`") && error.contains("debug"), "{error}");
        for good in [None, Some(""), Some(" info "), Some("counterfoil_store=debug,warn")] {
            assert!(parse(good).is_ok(), "{good:?}");
        }
    }
}
