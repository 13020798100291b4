//! Reading an offer at the door: what passes has audio with Opus and a data channel.

use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::sdp::description::media::MediaDescription;

use super::{MAX_OFFER, OfferError, malformed};

/// An offer that can be answered.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) description: RTCSessionDescription,
    /// The number the browser gives Opus.
    pub(super) payload_type: u8,
}

pub(super) fn read(sdp: &str) -> Result<Offer, OfferError> {
    if sdp.len() > MAX_OFFER {
        return Err(malformed(format_args!("it is longer than {MAX_OFFER} bytes")));
    }
    if !sdp.starts_with("v=0") {
        return Err(malformed("it does not begin with `v=0`"));
    }
    let description = RTCSessionDescription::offer(sdp.to_owned()).map_err(malformed)?;
    let parsed = description.unmarshal().map_err(malformed)?;
    let sections = &parsed.media_descriptions;
    let audio = sections.iter().find(|m| m.media_name.media == "audio" && receives(m)).ok_or(OfferError::NoAudio)?;
    let payload_type = audio.attributes.iter().find_map(|a| opus_in(&a.key, a.value.as_deref()?)).ok_or(OfferError::NoOpus)?;
    let channel = |m: &MediaDescription| m.media_name.media == "application" && m.media_name.port.value != 0;
    if !sections.iter().any(channel) {
        return Err(OfferError::NoChannel);
    }
    let secured = |key: &str| {
        let everywhere = parsed.attributes.iter().chain(sections.iter().flat_map(|m| m.attributes.iter()));
        everywhere.into_iter().any(|a| a.key == key && a.value.is_some())
    };
    for key in ["ice-ufrag", "ice-pwd", "fingerprint"] {
        if !secured(key) {
            return Err(malformed(format_args!("it has no `a={key}`")));
        }
    }
    Ok(Offer { description, payload_type })
}

/// Whether the section is in use and the browser would play what we send in it.
fn receives(section: &MediaDescription) -> bool {
    section.media_name.port.value != 0 && !section.has_attribute("inactive") && !section.has_attribute("sendonly")
}

/// The payload type in `a=rtpmap:111 opus/48000/2`.
fn opus_in(key: &str, value: &str) -> Option<u8> {
    let (number, format) = value.split_once(' ')?;
    let opus = key == "rtpmap" && format.trim().eq_ignore_ascii_case("opus/48000/2");
    number.parse().ok().filter(|n: &u8| opus && *n < 128)
}
