//! The page and its modules, embedded into the binary. Nothing is fetched from anywhere else, and the headers say so.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// What a browser may do with the page: run and style it from here, talk to here, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
     connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! embed {
    ($($name:literal: $kind:expr),* $(,)?) => {
        &[$(Asset {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/web/", $name)),
        }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Every file of `assets/web`.
const ASSETS: &[Asset] = embed! {
    "index.html": HTML,
    "app.js": SCRIPT,
    "clock.js": SCRIPT,
    "gate.js": SCRIPT,
    "icon.svg": IMAGE,
    "link.js": SCRIPT,
    "panels.js": SCRIPT,
    "playback.js": SCRIPT,
    "story.js": SCRIPT,
    "style.css": STYLE,
    "timeline.js": SCRIPT,
    "worklet.js": SCRIPT,
};

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The assets by name, each with its entity tag.
static BY_NAME: LazyLock<BTreeMap<&'static str, (&'static Asset, HeaderValue)>> = LazyLock::new(|| {
    let tagged = |asset: &'static Asset| {
        let tag = HeaderValue::from_str(&format!("\"{:016x}\"", fingerprint(asset.bytes))).expect("hexadecimal digits");
        (asset.name, (asset, tag))
    };
    ASSETS.iter().map(tagged).collect()
});

/// `GET /`.
pub(super) async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

/// `GET /assets/{name}`.
pub(super) async fn asset(name: Result<Path<String>, PathRejection>, headers: HeaderMap) -> Response {
    let Ok(Path(name)) = name else { return Problem::NoSuchPath.into_response() };
    serve(&name, &headers)
}

/// Whatever no route takes: a file of the page, which refers to its parts beside itself, or nothing.
pub(super) async fn beside(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match uri.path().strip_prefix('/') {
        Some(name) if matches!(method, Method::GET | Method::HEAD) => serve(name, &headers),
        _ => Problem::NoSuchPath.into_response(),
    }
}

fn serve(name: &str, asked: &HeaderMap) -> Response {
    let Some((asset, tag)) = BY_NAME.get(name) else { return Problem::NoSuchPath.into_response() };
    let known = asked.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let tag_text = tag.to_str().expect("made of visible characters");
    let is_known = known.is_some_and(|tags| tags.split(',').any(|t| t.trim().trim_start_matches("W/") == tag_text));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, asset.kind)], asset.bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag.clone());
    // The names carry no version, so a browser asks each time and gets 304 as long as the binary is the same.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("permissions-policy"), "microphone=(self), camera=(), geolocation=()"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// FNV-1a: tells builds apart; nobody's safety rests on it.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_page_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/web");
        let mut files: Vec<String> = fs::read_dir(&folder)
            .expect("the page is in the repository")
            .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("a plain name"))
            .filter(|name| !name.ends_with(".md"))
            .collect();
        files.sort();
        assert_eq!(BY_NAME.keys().copied().collect::<Vec<_>>(), files);
    }

    #[test]
    fn the_page_keeps_its_own_policy() {
        for asset in ASSETS.iter().filter(|asset| asset.kind == HTML) {
            let text = std::str::from_utf8(asset.bytes).expect("the page is UTF-8");
            assert!(!text.contains(" style="), "{}: inline styles are blocked by the policy", asset.name);
            assert!(!text.contains("<style"), "{}: inline style sheets are blocked by the policy", asset.name);
            assert!(!text.contains("javascript:"), "{}: script URLs are blocked by the policy", asset.name);
            for tag in text.split("<script").skip(1) {
                let tag = tag.split('>').next().unwrap_or_default();
                assert!(tag.contains("src="), "{}: inline scripts are blocked by the policy: <script{tag}>", asset.name);
            }
            for attribute in ["src=\"http", "src=\"//", "href=\"//"] {
                assert!(!text.contains(attribute), "{}: {attribute} fetches from outside", asset.name);
            }
        }
    }

    #[test]
    fn an_unchanged_asset_is_not_sent_again() {
        let first = serve("index.html", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(serve("index.html", &asked).status(), StatusCode::NOT_MODIFIED);
        asked.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(serve("index.html", &asked).status(), StatusCode::OK);
    }
}
