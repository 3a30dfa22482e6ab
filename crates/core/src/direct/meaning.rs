//! What an upstream's answer means for the effect, as one table.

/// The shape of an upstream's answer to a request, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerShape {
    /// A result that is complete, with or without `isError`.
    Result {
        /// Whether `isError` is true.
        is_error: bool,
    },
    /// A result of type `input_required`.
    InputRequired,
    /// A result of type `task`: the work goes on elsewhere.
    Task,
    /// A JSON-RPC error.
    Error {
        /// Its code.
        code: i64,
    },
    /// A result of a type that nobody knows, or an answer that cannot be read.
    Unreadable,
}

/// What a tool's declaration says of its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorMeans {
    /// Nothing: an error may come after the effect.
    #[default]
    Unknown,
    /// An error is only given before any effect.
    NotApplied,
    /// An error is only given after the effect.
    Applied,
}

/// What the answer means for the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The effect happened.
    Applied,
    /// Refused before any effect.
    NotApplied,
    /// The caller has its answer, and the effect stays unknown; nothing waits for it.
    Answered,
    /// The upstream asks for input. Nothing is settled.
    Asks,
    /// As if no answer had come.
    Unknown,
}

/// JSON-RPC errors by which a server refuses a request that it has not begun: those of JSON-RPC 2.0
/// (section 5.1: parse error, invalid request, method not found, invalid params) and those of MCP
/// 2026-07-28 for headers and versions.
const REFUSED_UNBEGUN: [i64; 7] = [-32700, -32600, -32601, -32602, -32020, -32021, -32022];

/// Says what an answer to the request number `leg` (counted from 1) of one operation means. On later
/// ones an earlier one may have had its effect, so that no error proves anything.
#[must_use]
pub fn meaning(shape: AnswerShape, leg: u32, error_means: ErrorMeans) -> Meaning {
    let first = leg == 1;
    match shape {
        AnswerShape::Result { is_error: false } => Meaning::Applied,
        AnswerShape::InputRequired => Meaning::Asks,
        AnswerShape::Task => Meaning::Answered,
        AnswerShape::Unreadable => Meaning::Unknown,
        AnswerShape::Error { code } if first && REFUSED_UNBEGUN.contains(&code) => {
            Meaning::NotApplied
        }
        AnswerShape::Result { is_error: true } | AnswerShape::Error { .. } => match error_means {
            ErrorMeans::Applied => Meaning::Applied,
            ErrorMeans::NotApplied if first => Meaning::NotApplied,
            ErrorMeans::NotApplied | ErrorMeans::Unknown => Meaning::Answered,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_means_what_the_table_says() {
        // Promise: only a refusal of a request that was not begun, or the tool's own declaration,
        // makes an error a proof; and never after an earlier request of the same operation.
        use ErrorMeans as E;
        use Meaning as M;
        let error = |code| AnswerShape::Error { code };
        let tool_error = AnswerShape::Result { is_error: true };
        let table = [
            (AnswerShape::Result { is_error: false }, 1, E::Unknown, M::Applied),
            (AnswerShape::Result { is_error: false }, 2, E::NotApplied, M::Applied),
            (tool_error, 1, E::Unknown, M::Answered),
            (tool_error, 1, E::NotApplied, M::NotApplied),
            (tool_error, 1, E::Applied, M::Applied),
            (tool_error, 2, E::NotApplied, M::Answered),
            (tool_error, 2, E::Applied, M::Applied),
            (AnswerShape::InputRequired, 1, E::Unknown, M::Asks),
            (AnswerShape::InputRequired, 3, E::Applied, M::Asks),
            (AnswerShape::Task, 1, E::NotApplied, M::Answered),
            (AnswerShape::Unreadable, 1, E::Applied, M::Unknown),
            (error(-32603), 1, E::Unknown, M::Answered),
            (error(-32603), 1, E::NotApplied, M::NotApplied),
            (error(-32000), 1, E::Unknown, M::Answered),
            (error(-32001), 2, E::NotApplied, M::Answered),
        ];
        for (shape, leg, means, expected) in table {
            assert_eq!(meaning(shape, leg, means), expected, "{shape:?} {leg} {means:?}");
        }
        for code in REFUSED_UNBEGUN {
            for means in [E::Unknown, E::NotApplied, E::Applied] {
                assert_eq!(meaning(error(code), 1, means), M::NotApplied, "{code}");
            }
            assert_eq!(meaning(error(code), 2, E::Unknown), M::Answered, "{code}");
        }
    }
}
