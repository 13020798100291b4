//! A real Chromium, driven by chromedriver, with a file for a microphone.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::served::first_line_with;

/// What to do when there is no browser.
const HELP: &str =
    "this test needs Chromium: `apt-get install -y chromium chromium-driver` (or set CHROME and CHROMEDRIVER to their paths)";

/// A browser with a fresh profile; everything ends when dropped.
pub(crate) struct Browser {
    driver: Child,
    profile: tempfile::TempDir,
    /// The WebDriver session.
    pub(crate) client: Client,
}

impl Browser {
    /// Starts one whose microphone plays `mic` once, beginning when a page opens it; without a file it has none.
    pub(crate) async fn start(mic: Option<&Path>) -> Browser {
        let chrome = program("CHROME", &["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]);
        let chromedriver = program("CHROMEDRIVER", &["/usr/bin/chromedriver", "/usr/lib/chromium/chromedriver"]);
        let mut driver = Command::new(chromedriver)
            .args(["--port=0", "--log-level=WARNING"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(HELP);
        let stdout = driver.stdout.take().expect("it was asked for");
        let port = first_line_with(stdout, driver_port).expect("chromedriver says its port");

        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--autoplay-policy=no-user-gesture-required",
            "--window-size=1280,900",
        ]
        .map(String::from)
        .to_vec();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        if let Some(mic) = mic {
            args.push("--use-fake-ui-for-media-stream".into());
            args.push("--use-fake-device-for-media-stream".into());
            args.push(format!("--use-file-for-fake-audio-capture={}%noloop", mic.display()));
        }
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chrome, "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": 120_000, "pageLoad": 60_000 },
        });
        let Value::Object(capabilities) = capabilities else { unreachable!("it is written as an object above") };
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("chromedriver starts Chromium");
        Browser { driver, profile, client }
    }

    /// Runs a script in the page and returns its value.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_else(|e| panic!("{e}\nin the page: {script}"))
    }

    /// Presses the element with this id.
    pub(crate) async fn click(&self, id: &str) {
        let element = self.client.find(Locator::Id(id)).await.unwrap_or_else(|e| panic!("#{id}: {e}"));
        element.click().await.unwrap_or_else(|e| panic!("#{id}: {e}"));
    }

    /// Looks every 100 ms, for at most `within`, until `script` returns `true`; says `what` it waited for when it does not.
    pub(crate) async fn until(&self, within: Duration, what: &str, script: &str) {
        let looks = within.as_millis() / 100;
        for _ in 0..looks {
            if self.run(script).await == Value::Bool(true) {
                return;
            }
            pause(Duration::from_millis(100)).await;
        }
        let seen = self.run("return window.antiphon && JSON.stringify(antiphon.state())").await;
        let notice = self.run("return document.getElementById('notice-text')?.textContent").await;
        panic!("waited {within:?} for: {what}\nthe page says: {notice}\nits state: {seen}");
    }

    /// Ends the browser in good order.
    pub(crate) async fn close(self) {
        // What is left, if this fails, is killed on drop.
        let _ = self.client.clone().close().await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser whose driver was killed lives on: end the one that runs on our profile, then the driver.
        for pid in running_on(self.profile.path()) {
            let _ = Command::new("kill").arg("-9").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A real browser lives in real time.
#[allow(
    clippy::disallowed_methods,
    reason = "a real browser and a recorded microphone take real time; nothing is asserted about how long"
)]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Processes whose command line names our profile folder.
fn running_on(profile: &Path) -> Vec<u32> {
    let wanted = format!("--user-data-dir={}", profile.display());
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|arg| arg == wanted.as_bytes())
        })
        .collect()
}

fn program(variable: &str, usual: &[&str]) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = named.or_else(|| usual.iter().map(PathBuf::from).find(|p| p.exists()));
    found.filter(|p| p.exists()).unwrap_or_else(|| panic!("{HELP}"))
}

fn driver_port(line: &str) -> Option<u16> {
    line.split("successfully on port ").nth(1)?.trim().trim_end_matches('.').parse().ok()
}

/// The bytes of a base64 text (standard alphabet); panics on anything else, which only our own page could send.
pub(crate) fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("not base64: {other}"),
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group.iter().fold(0u32, |bits, c| bits << 6 | u32::from(value(*c))) << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64(text), bytes.as_bytes());
        }
        assert_eq!(base64("+/8A"), [0xfb, 0xff, 0x00]);
    }

    #[test]
    fn the_driver_says_its_port() {
        assert_eq!(driver_port("ChromeDriver was started successfully on port 43211."), Some(43_211));
        assert_eq!(driver_port("Starting ChromeDriver 156"), None);
    }
}
