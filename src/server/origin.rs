//! Who may open and end sessions from a browser: pages of this server, and of origins named in its configuration.
//!
//! A session takes a microphone and a loudspeaker, so a foreign page must not open one unasked. Requests without an `Origin`
//! header do not come from a page of another origin and are let through.
//!
//! A page is ours by itself only under an address or `localhost`. A name can be made to point here by whoever owns it (DNS rebinding),
//! so a site behind a proxy is named in the configuration like any other.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderValue, header};

use super::problem::Problem;

/// What a request's origin is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Ours, or none.
    Same,
    /// Another one, which the configuration names. The answer must say so.
    Allowed(HeaderValue),
}

/// Judges a request by its headers.
pub(super) fn judge(headers: &HeaderMap, allowed: &[String]) -> Result<Origin, Problem> {
    let Some(value) = headers.get(header::ORIGIN) else { return Ok(Origin::Same) };
    let Ok(origin) = value.to_str() else { return Err(Problem::CrossOrigin { origin: "an unreadable origin".into() }) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(|host| is_of(origin, host) && cannot_be_rebound(host)) {
        return Ok(Origin::Same);
    }
    if allowed.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return Ok(Origin::Allowed(value.clone()));
    }
    Err(Problem::CrossOrigin { origin: origin.chars().take(200).collect() })
}

/// Whether a page of `origin` is a page of `host`. The scheme is not compared: in front of us a proxy may speak TLS.
fn is_of(origin: &str, host: &str) -> bool {
    let (authority, port) = match origin.split_once("://") {
        Some(("http", authority)) => (authority, ":80"),
        Some(("https", authority)) => (authority, ":443"),
        _ => return false,
    };
    let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    bare(authority) == bare(host)
}

/// Whether `host` (with or without a port) is an address or `localhost`, which no foreign name server answers for.
fn cannot_be_rebound(host: &str) -> bool {
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split_once(']').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(origin: Option<&str>, host: &str) -> Result<Origin, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).expect("a host"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).expect("an origin"));
        }
        judge(&headers, &["https://app.example".to_owned()])
    }

    #[test]
    fn pages_of_this_server_and_programs_are_let_through() {
        for (origin, host) in [
            (None, "127.0.0.1:7880"),
            (Some("http://127.0.0.1:7880"), "127.0.0.1:7880"),
            (Some("http://LocalHost"), "localhost:80"),
            (Some("http://[::1]:7880"), "[::1]:7880"),
        ] {
            assert_eq!(judged(origin, host), Ok(Origin::Same), "{origin:?} on {host}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused_unless_they_are_named() {
        for origin in ["http://evil.example", "http://127.0.0.1:7881", "http://127.0.0.1:7880.evil.example", "null", "file://"] {
            assert!(judged(Some(origin), "127.0.0.1:7880").is_err(), "{origin}");
        }
        assert!(judged(Some("http://evil.example:7880"), "evil.example:7880").is_err(), "a name that was made to point here");
        let allowed = HeaderValue::from_static("https://app.example");
        assert_eq!(judged(Some("https://app.example"), "app.example"), Ok(Origin::Allowed(allowed.clone())), "behind a proxy");
        assert_eq!(judged(Some("https://app.example"), "127.0.0.1:7880"), Ok(Origin::Allowed(allowed)));
    }
}
