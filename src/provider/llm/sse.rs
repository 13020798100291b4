//! Server-sent events, as bytes come. Layer 2, pure.
//!
//! Laws: how the bytes are split does not matter; a line ends with LF, CR LF or CR; comments and unknown fields are nothing; an
//! event is given out at its blank line. Proved by the tests below.

/// More than this in one event is an attack or a fault, bytes.
const LONGEST: usize = 1 << 20;

/// An event was longer than [`LONGEST`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The reader of one stream.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    line: Vec<u8>,
    data: Option<String>,
    after_cr: bool,
    begun: bool,
}

impl Sse {
    /// Takes bytes and appends the data of every event that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<String>) -> Result<(), TooLong> {
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\r' | b'\n' => self.end_line(out),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > LONGEST {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    /// The stream is over: what has no blank line behind it counts as well, since some servers forget it.
    pub(crate) fn finish(&mut self, out: &mut Vec<String>) {
        if !self.line.is_empty() {
            self.end_line(out);
        }
        out.extend(self.data.take());
    }

    fn end_line(&mut self, out: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        // A byte order mark may stand at the very beginning.
        let line = if self.begun { &*line } else { line.strip_prefix('\u{feff}').unwrap_or(&line) };
        self.begun = true;
        if line.is_empty() {
            out.extend(self.data.take());
        } else if let Some(value) = line.strip_prefix("data").and_then(|rest| match rest {
            "" => Some(""),
            _ => rest.strip_prefix(':').map(|v| v.strip_prefix(' ').unwrap_or(v)),
        }) {
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]]) -> Vec<String> {
        let (mut sse, mut out) = (Sse::default(), Vec::new());
        for part in parts {
            sse.push(part, &mut out).expect("short");
        }
        sse.finish(&mut out);
        out
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let stream =
            "\u{feff}: hello\r\ndata: Grüße\r\n\r\nevent: x\ndata:two\ndata: lines\n\nid: 7\rdata\r\r\n\ndata: last".as_bytes();
        let want = ["Grüße", "two\nlines", "", "last"];
        assert_eq!(read(&[stream]), want);
        for a in 0..=stream.len() {
            for b in [a, (a + 1).min(stream.len()), (a + 7).min(stream.len())] {
                assert_eq!(read(&[&stream[..a], &stream[a..b], &stream[b..]]), want, "split at {a} and {b}");
            }
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (mut sse, mut out) = (Sse::default(), Vec::new());
        let piece = [b'x'; 65_536];
        let end = (0..100).find_map(|_| sse.push(&piece, &mut out).err());
        assert_eq!(end, Some(TooLong));
        let endless_event = b"data: y\n".repeat(600_000);
        assert_eq!(Sse::default().push(&endless_event, &mut out), Err(TooLong));
    }
}
