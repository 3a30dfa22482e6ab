//! How far a text goes on without anything that JSON escapes: what reading and writing strings
//! spend their time on, so it takes eight bytes at a time.

const LANE_BYTES: usize = 8;
/// One in each byte of a word.
const ONES: u64 = u64::MAX / 255;
/// The top bit of each byte of a word.
const TOPS: u64 = ONES << 7;

/// Count of bytes before the first that cannot stand in a JSON string as it is: a quote, a
/// backslash, or a control character (RFC 8259, section 7). The whole length if there is none.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let (lanes, tail) = bytes.as_chunks::<LANE_BYTES>();
    for (index, lane) in lanes.iter().enumerate() {
        let specials = specials(u64::from_le_bytes(*lane));
        if specials != 0 {
            // The first byte is the lowest.
            return index * LANE_BYTES + specials.trailing_zeros() as usize / LANE_BYTES;
        }
    }
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    bytes.len() - tail.len() + tail.iter().position(special).unwrap_or(tail.len())
}

/// The top bit of each byte of `word` that is special. Bytes above the lowest special one may be
/// marked without being so, as the subtractions borrow from them; it itself never is wrong.
const fn specials(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let is_quote = quote.wrapping_sub(ONES) & !quote;
    let is_backslash = backslash.wrapping_sub(ONES) & !backslash;
    (below | is_quote | is_backslash) & TOPS
}

#[cfg(test)]
mod tests {
    use super::plain_run;

    #[test]
    fn every_special_byte_is_found_wherever_it_stands() {
        // Promise: taking eight bytes at a time finds what one at a time finds, whatever is around.
        let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        for around in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
            for length in 0..20 {
                assert_eq!(plain_run(&vec![around; length]), length, "{around:#x} {length}");
                for at in 0..length {
                    for byte in 0..=255 {
                        let mut bytes = vec![around; length];
                        bytes[at] = byte;
                        let expected = if special(byte) { at } else { length };
                        assert_eq!(plain_run(&bytes), expected, "{bytes:x?}");
                        // What follows a special byte does not move it.
                        bytes[at + 1..].fill(0x01);
                        let expected = if special(byte) { at } else { (at + 1).min(length) };
                        assert_eq!(plain_run(&bytes), expected, "{bytes:x?}");
                    }
                }
            }
        }
    }
}
