//! Links: what is sent is what is heard, what is stale is not heard, what ends leaves nothing behind.
//!
//! The memory link is turned by hand on hand-made stamps. WebRTC runs over loopback against a second peer in this process; there
//! the only waits are for the wire, behind one watchdog.

/// Refuses inside `assert_no_alloc`, which stands around the microphone half of the real link.
#[global_allocator]
static ALLOCATOR: assert_no_alloc::AllocDisabler = assert_no_alloc::AllocDisabler;

#[path = "transport/memory.rs"]
mod memory;
#[cfg(feature = "webrtc")]
#[path = "transport/peer.rs"]
mod peer;
#[cfg(feature = "webrtc")]
#[path = "transport/webrtc.rs"]
mod webrtc_link;
