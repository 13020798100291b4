//! The real server, as a child process on a port of its own choice.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long the server may take until it prints its address.
const START: Duration = Duration::from_secs(30);

/// A running `antiphon serve`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    /// Where its page is, such as `http://127.0.0.1:40123`.
    pub(crate) url: String,
}

impl Served {
    /// Starts it with `flags` after `serve --listen 127.0.0.1:0`; its standard error goes to `log`.
    pub(crate) fn start(flags: &[&str], log: &Path) -> Served {
        let complaints = std::fs::File::create(log).expect("the temporary folder can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_antiphon"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()
            .expect("the server was built with this test");
        let stdout = child.stdout.take().expect("it was asked for");
        let mut served = Served { child, url: String::new() };
        match first_line_with(stdout, address) {
            Some(url) => served.url = url,
            None => panic!(
                "the server printed no address within {START:?}; it said:\n{}",
                std::fs::read_to_string(log).unwrap_or_default()
            ),
        }
        served
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines until `pick` finds something in one, for at most [`START`]; goes on reading in the background so that the pipe never fills.
pub(crate) fn first_line_with<T: Send + 'static>(from: impl Read + Send + 'static, pick: fn(&str) -> Option<T>) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Some(found) = pick(&line) {
                // Nobody listens any more after the first.
                let _ = tell.send(found);
            }
        }
    });
    told.recv_timeout(START).ok()
}

/// The `http://host:port` in a line.
fn address(line: &str) -> Option<String> {
    let from = line.find("http://")?;
    let rest = &line[from..];
    let end = rest[7..].find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]-".contains(c))).map_or(rest.len(), |i| i + 7);
    let url = rest[..end].trim_end_matches(['.', ':']);
    url[7..].contains(':').then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_what_the_server_prints() {
        assert_eq!(address("open http://127.0.0.1:40123/ in a browser").as_deref(), Some("http://127.0.0.1:40123"));
        assert_eq!(address("http://[::1]:7880.").as_deref(), Some("http://[::1]:7880"));
        assert_eq!(address("no address here"), None);
        assert_eq!(address("see http://example.org"), None);
    }
}
