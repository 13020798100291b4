//! The house checks itself: imports go downward only, each room opens with its page, each foreign crate is named in one place, and
//! time is read and waited for only where the page of `time` and the rooms say so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import of ours. The rooms of one layer do not see each other unless it stands here.
const MAY: &[(&str, &[&str])] = &[
    ("time", &[]),
    ("id", &[]),
    ("event", &["time", "id"]),
    ("turn", &["time", "id", "event"]),
    ("audio", &["time", "id"]),
    ("provider", &["time", "id", "event"]),
    ("transport", &["time", "id", "event", "audio"]),
    ("store", &["time", "id", "event"]),
    ("observe", &["time", "id", "event"]),
    ("engine", &["time", "id", "event", "turn", "audio", "provider", "transport", "store", "observe"]),
    ("server", &["time", "id", "event", "turn", "audio", "provider", "transport", "store", "observe", "engine"]),
    ("lab", &["time", "id", "event", "turn", "audio", "provider", "transport", "store", "observe", "engine"]),
];

/// The one room or file in which each of these crates is named.
const NAMED_IN: &[(&str, &str)] =
    &[("webrtc", "src/transport/webrtc"), ("rtc", "src/transport/webrtc"), ("opus", "src/audio/codec"), ("axum", "src/server")];

/// Readers of a clock, and who may call them.
const READERS: &[&str] = &["Instant::now(", "SystemTime::now("];
const MAY_READ: &[&str] = &["src/time.rs"];
/// Waiters for time, and who may call them: the driver, the pump, providers that pace themselves and their contract suite, the
/// network's own bounds, the server's, and the lab, which waits on paused time.
const WAITERS: &[&str] =
    &["thread::sleep(", "time::sleep(", "time::sleep_until(", "time::timeout(", "time::timeout_at(", "time::interval("];
const MAY_WAIT: &[&str] = &[
    "src/engine/session.rs",
    "src/engine/pump.rs",
    "src/provider/",
    "src/transport/webrtc/",
    "src/server/",
    "src/lab/world.rs",
    "src/lab/player.rs",
];

struct Source {
    /// With `/`, from the root of the repository.
    path: String,
    /// Code only: comments are cut off.
    code: String,
    text: String,
}

fn sources() -> Vec<Source> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("src is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    walk(&root.join("src"), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source is UTF-8");
        let code = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        Source { path, code, text }
    };
    paths.into_iter().map(read).collect()
}

/// The room a file belongs to; none for the facade and the programs, which may see everything.
fn room(path: &str) -> Option<&str> {
    let first = path.strip_prefix("src/")?.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "error" | "bin")).then_some(name)
}

/// Whether `code` names the path `word::`, as a word of its own.
fn names<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let with_colons = format!("{word}::");
    let starts: Vec<usize> = code.match_indices(&with_colons).map(|(at, _)| at).collect();
    starts.into_iter().filter(move |at| {
        let before = code[..*at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':'))
    })
}

/// The rooms a piece of code imports, by `crate::room` and by `crate::{room, ...}`.
fn imported(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => rooms.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()),
            Some(group) => {
                // At depth 1 a word is a room until a `::` or a brace; what follows up to the comma is inside that room.
                let (mut depth, mut inside, mut word) = (1, false, String::new());
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    if depth == 1 && !inside && (c.is_alphanumeric() || c == '_') {
                        word.push(c);
                    } else if !word.is_empty() {
                        rooms.push(std::mem::take(&mut word));
                        inside = c != ',';
                    } else if depth == 1 && c == ',' {
                        inside = false;
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    rooms
}

#[test]
fn imports_go_downward_only() {
    let may: BTreeMap<&str, &[&str]> = MAY.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for source in sources() {
        let Some(own) = room(&source.path) else { continue };
        let allowed = may.get(own).unwrap_or_else(|| panic!("{}: no layer is written down for the room `{own}`", source.path));
        for other in imported(&source.code) {
            seen += 1;
            // `crate::Type` would go through the facade, which is above everything.
            if other != own && !allowed.contains(&other.as_str()) {
                wrong.push(format!("{} imports crate::{other}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "the reader of imports reads: {seen}");
}

#[test]
fn the_reader_of_imports_reads() {
    let code = "use crate::time::Stamp;\nuse crate::{id::{A, B}, turn, event::Event};\nlet x = crate::store::Memory;";
    assert_eq!(imported(code), ["time", "id", "turn", "event", "store"].map(str::to_owned));
    assert_eq!(names("use webrtc::x; crate::transport::webrtc::y; my_webrtc::z", "webrtc").count(), 1);
}

#[test]
fn rooms_that_decide_and_sound_know_nothing_of_tokio() {
    for source in sources() {
        let quiet = matches!(room(&source.path), Some("turn" | "audio" | "event" | "id"));
        assert!(!quiet || names(&source.code, "tokio").next().is_none(), "{} names tokio", source.path);
        let pure = room(&source.path) == Some("turn");
        assert!(!pure || !source.code.contains("async fn") && !source.code.contains(".await"), "{} awaits", source.path);
    }
}

#[test]
fn foreign_crates_are_named_in_one_place() {
    let mut found = vec![0; NAMED_IN.len()];
    for source in sources().iter().filter(|source| room(&source.path).is_some()) {
        for (i, (name, place)) in NAMED_IN.iter().enumerate() {
            for at in names(&source.code, name) {
                // A module of ours of the same name, used through an import, stands in a file that imports it from `crate`.
                let ours = source.code.contains(&format!("crate::transport::{name};"));
                let inside = source.path.starts_with(place);
                assert!(inside || ours, "{} names the crate {name} at byte {at}; it belongs into {place}", source.path);
                found[i] += usize::from(inside);
            }
        }
    }
    assert!(found.iter().all(|n| *n > 0), "each crate is found where it belongs: {found:?}");
}

#[test]
fn the_clock_is_read_in_one_file_and_waits_stand_where_they_may() {
    let mut reads = 0;
    for source in sources() {
        for reader in READERS.iter().filter(|reader| source.code.contains(**reader)) {
            reads += 1;
            assert!(MAY_READ.contains(&source.path.as_str()), "{} reads a clock: {reader}", source.path);
        }
        for waiter in WAITERS.iter().filter(|waiter| source.code.contains(**waiter)) {
            assert!(MAY_WAIT.iter().any(|may| source.path.starts_with(may)), "{} waits for time: {waiter}", source.path);
        }
    }
    assert!(reads >= 2, "the clock is read in time.rs");
}

#[test]
fn every_room_opens_with_its_page() {
    let mut rooms = 0;
    for source in sources() {
        assert!(
            source.text.starts_with("//!") || source.path.ends_with("tests.rs"),
            "{} begins without saying what it is",
            source.path
        );
        let Some(own) = room(&source.path).filter(|own| source.path == format!("src/{own}/mod.rs")) else { continue };
        rooms += 1;
        let page: Vec<&str> = source.text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(page[0].starts_with(&format!("//! `{own}`: ")), "{}: the page begins with the room's name", source.path);
        let page = page.join("\n").to_lowercase();
        assert!(page.contains("layer "), "{}: the page does not tell the layer", source.path);
        let proved = ["prove", "tests/"].iter().any(|word| page.contains(word));
        assert!(proved, "{}: the page does not tell where its laws are proved", source.path);
    }
    assert_eq!(rooms, MAY.len() - 2, "every room but time and id is a folder with a page");
}
