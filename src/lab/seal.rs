//! `lab::seal`: closes the process's own door to the network, so that a lab that reaches out fails instead of passing by luck.
//!
//! Layer 4. On Linux a seccomp filter refuses every new socket but local ones, in all threads and for good; other systems have no such
//! thing here, and the report says so. Proved by `tests/lab.rs`, which tries.

use std::net::{TcpListener, UdpSocket};

/// Errors of the seal.
#[derive(Debug, thiserror::Error)]
#[error("the network could not be closed: {0}")]
pub struct SealError(String);

/// Refuses sockets to the network, in all threads of this process, from now on. `Ok(false)`: this system cannot.
///
/// # Errors
/// [`SealError`] when the kernel does not take the filter.
#[cfg(target_os = "linux")]
pub fn seal() -> Result<bool, SealError> {
    use std::collections::HashMap;

    /// "Permission denied".
    const EACCES: u32 = 13;
    /// Sockets inside the machine, which stay allowed: the runtime wakes itself by one.
    const AF_UNIX: u64 = 1;
    // A ring of requests to the kernel could open sockets past the filter.
    let filter = serde_json::json!({"lab": {
        "mismatch_action": "allow",
        "match_action": {"errno": EACCES},
        "filter": [
            {"syscall": "socket", "args": [{"index": 0, "type": "dword", "op": "ne", "val": AF_UNIX}]},
            {"syscall": "io_uring_setup"},
        ],
    }});
    let arch = std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| SealError(error.to_string()))?;
    let programs: HashMap<String, seccompiler::BpfProgram> =
        seccompiler::compile_from_json(filter.to_string().as_bytes(), arch).map_err(|error| SealError(error.to_string()))?;
    for program in programs.values() {
        seccompiler::apply_filter_all_threads(program).map_err(|error| SealError(error.to_string()))?;
    }
    Ok(true)
}

/// Refuses sockets to the network, in all threads of this process, from now on. `Ok(false)`: this system cannot.
///
/// # Errors
/// None here.
#[cfg(not(target_os = "linux"))]
pub fn seal() -> Result<bool, SealError> {
    Ok(false)
}

/// Tries to open sockets, on the loopback only: `(what, whether it was opened)`.
pub fn try_sockets() -> [(&'static str, bool); 4] {
    [
        ("tcp4", TcpListener::bind(("127.0.0.1", 0)).is_ok()),
        ("udp4", UdpSocket::bind(("127.0.0.1", 0)).is_ok()),
        ("tcp6", TcpListener::bind(("::1", 0)).is_ok()),
        ("udp6", UdpSocket::bind(("::1", 0)).is_ok()),
    ]
}
