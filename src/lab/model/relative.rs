//! What makes two states of the search one: everything but when they were reached.

/// The hash of a text in which every stamp is taken relative to `now` and every seq relative to `last`.
pub(super) fn relative(text: &str, now: u64, last: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |word: u64| hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let bytes = text.as_bytes();
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        mix(u64::from(*byte));
        i += 1;
        let base = match byte {
            b'(' if bytes[..i].ends_with(b"Stamp(") => now,
            b'(' if bytes[..i].ends_with(b"Seq(") => last,
            _ => continue,
        };
        let mut value = 0u64;
        while let Some(digit) = bytes.get(i).filter(|digit| digit.is_ascii_digit()) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            i += 1;
        }
        mix(value.wrapping_sub(base));
    }
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_differ_only_in_when_are_one() {
        assert_eq!(relative("a Stamp(15) Seq(4) b", 10, 3), relative("a Stamp(1005) Seq(10) b", 1_000, 9));
        assert_ne!(relative("a Stamp(15)", 10, 3), relative("a Stamp(16)", 10, 3));
        assert_ne!(relative("a Turn(15)", 10, 3), relative("a Turn(1005)", 1_000, 3), "only stamps and seqs are relative");
    }
}
