//! webrtc link
