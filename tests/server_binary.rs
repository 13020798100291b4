//! The `antiphon` program as a person runs it: help, configuration and its errors, start-up checks, signals.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use antiphon::server::config::{Config, LogFormat};

/// The program with nothing of our own environment but the search path.
fn antiphon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("it writes text");
    (status.code(), text(stdout), text(stderr))
}

/// The effective configuration, as the program prints it.
fn printed(command: &mut Command) -> Config {
    let (code, out, err) = run(command.arg("--print-config"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    toml::from_str(&out).expect("it prints a configuration file")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("antiphon.toml");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a plain path").to_owned();
    (folder, path)
}

#[test]
fn it_tells_how_it_is_used() {
    let (code, out, _) = run(&mut antiphon(&["--help"]));
    assert!(code == Some(0) && out.contains("serve"), "{out}");
    let (code, out, _) = run(&mut antiphon(&["serve", "--help"]));
    for word in ["--listen", "ANTIPHON_LISTEN", "--config", "--print-config", "127.0.0.1:7880"] {
        assert!(code == Some(0) && out.contains(word), "{word} is missing from\n{out}");
    }
    let (code, out, _) = run(&mut antiphon(&["--version"]));
    assert_eq!((code, out.trim()), (Some(0), concat!("antiphon ", env!("CARGO_PKG_VERSION"))));
    // Without a word it serves: it gets as far as the address in the environment.
    let (code, out, err) = run(antiphon(&[]).env("ANTIPHON_LISTEN", "nowhere"));
    assert!(code == Some(2) && out.is_empty() && err.contains("--listen"), "{out}{err}");
    let (code, _, err) = run(&mut antiphon(&["sing"]));
    assert!(code == Some(2) && err.contains("sing"), "{err}");
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    assert_eq!(printed(&mut antiphon(&["serve"])), Config::default());
    let (_folder, path) = file("listen = '127.0.0.1:1001'\n[limits]\nsessions = 1\n[log]\nformat = 'json'\n[tts]\nspeed = 100\n");
    let mut command = antiphon(&["serve", "--listen", "127.0.0.1:3003"]);
    command.env("ANTIPHON_CONFIG", &path).env("ANTIPHON_LISTEN", "127.0.0.1:2002").env("ANTIPHON_SESSIONS", "2");
    let config = printed(&mut command);
    assert_eq!(config.listen.port(), 3003, "the flag");
    assert_eq!(config.limits.sessions, 2, "the environment");
    assert_eq!((config.log.format, config.tts.speed), (LogFormat::Json, 100), "the file");
    assert_eq!(config.drain_ms, Config::default().drain_ms, "the default");
}

#[test]
fn what_is_printed_is_read_back_to_the_same() {
    let changes = ["serve", "--metrics", "false", "--origin", "https://a.example,https://b.example", "--webrtc-bind", "192.0.2.1"];
    let first = printed(&mut antiphon(&changes));
    assert_eq!(first.origins, ["https://a.example", "https://b.example"]);
    let (_folder, path) = file(&first.to_toml());
    assert_eq!(printed(&mut antiphon(&["serve", "--config", &path])), first);
}

#[test]
fn an_address_of_another_machine_is_refused_for_media_at_start() {
    // 192.0.2.0/24 is kept for documentation: no machine has it.
    let (code, out, err) = run(&mut antiphon(&["serve", "--listen", "127.0.0.1:0", "--webrtc-bind", "192.0.2.1"]));
    assert!(code == Some(2) && out.is_empty() && err.contains("192.0.2.1") && err.contains("--webrtc-bind"), "{out}{err}");
}

#[test]
fn a_mistake_in_the_configuration_names_the_key_and_the_place() {
    for (text, words) in [
        ("lisen = '127.0.0.1:1'", vec!["lisen", "antiphon.toml", "unknown field", "listen"]),
        ("[policy.floor]\nhold_afer = 3", vec!["hold_afer", "antiphon.toml", "hold_after"]),
        ("[limits]\nsessions = 'many'", vec!["sessions = 'many'", "antiphon.toml", "line 2"]),
        ("[limits]\nsessions = 0", vec!["limits.sessions", "antiphon.toml"]),
        ("[stt]\nkind = 'oracle'", vec!["oracle", "pocketsphinx", "antiphon.toml"]),
        ("[llm]\nkind = 'openai'", vec!["llm.base_url", "antiphon.toml"]),
        ("= 3", vec!["antiphon.toml", "line 1"]),
    ] {
        let (_folder, path) = file(text);
        let (code, out, err) = run(&mut antiphon(&["serve", "--config", &path]));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{text}: {err}");
        for word in words {
            assert!(err.contains(word), "{text:?}: {word:?} is missing from\n{err}");
        }
    }
    let (code, _, err) = run(&mut antiphon(&["serve", "--config", "/no/such/file.toml"]));
    assert!(code == Some(2) && err.contains("/no/such/file.toml"), "{err}");
    let (code, _, err) = run(antiphon(&["serve"]).env("ANTIPHON_LISTEN", "here"));
    assert!(code == Some(2) && err.contains("--listen") && err.contains("here"), "{err}");
}

#[test]
fn a_key_is_never_printed() {
    let arguments = ["serve", "--llm", "openai", "--llm-base-url", "http://127.0.0.1:9/v1", "--llm-model", "m"];
    let mut command = antiphon(&arguments);
    let (code, out, err) = run(command.env("OPENAI_API_KEY", "sk-topsecret").arg("--print-config"));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("base_url") && !out.contains("topsecret") && !err.contains("topsecret"), "{out}{err}");
}

#[test]
fn without_its_programs_it_says_what_to_install() {
    let empty = tempfile::tempdir().expect("a folder");
    for (arguments, words) in [
        (vec!["serve", "--listen", "127.0.0.1:0"], vec!["pocketsphinx", "apt"]),
        (vec!["serve", "--listen", "127.0.0.1:0", "--stt", "none"], vec!["espeak-ng", "apt"]),
    ] {
        let (code, out, err) = run(antiphon(&arguments).env("PATH", empty.path()));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        for word in words {
            assert!(err.contains(word), "{word} is missing from\n{err}");
        }
    }
}

/// A started program; ended when the test is over, whatever happens.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

#[test]
fn it_says_where_it_listens_and_ends_when_told() {
    for name in ["TERM", "INT"] {
        let mut command = antiphon(&["serve", "--listen", "127.0.0.1:0", "--stt", "none", "--log-format", "json"]);
        let mut started = Started(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs"));
        let mut line = String::new();
        BufReader::new(started.0.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let port: u16 = line
            .strip_prefix("Antiphon listens on http://127.0.0.1:")
            .and_then(|rest| rest.split('/').next()?.parse().ok())
            .unwrap_or_else(|| panic!("{line:?} tells the address"));

        // The port is taken now, and a second one says so.
        let at = format!("127.0.0.1:{port}");
        let (code, _, err) = run(&mut antiphon(&["serve", "--listen", &at, "--stt", "none"]));
        assert!(code == Some(2) && err.contains("already in use") && err.contains(&port.to_string()), "{err}");

        signal(&started.0, name);
        assert_eq!(started.0.wait().expect("it ends").code(), Some(0), "SIG{name}");
        let mut log = String::new();
        started.0.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        for line in log.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} is JSON"));
            assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
        }
        assert!(log.contains("draining"), "{log}");
    }
}
