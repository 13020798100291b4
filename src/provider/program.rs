//! `Program`: a speech engine as a child process: text or sound in, sound or text out, and no trace of it after a stop.
//!
//! * Layer 2. Who owns it: the provider task that started it; nobody else sees it.
//! * The laws: [`Program::kill`] returns only when the process is gone and reaped; a task that is aborted instead drops it, and the
//!   runtime kills and reaps it then. Its complaints (stderr) are always drained, so it cannot block on them, and never logged,
//!   since they may hold what a person said.
//! * Proved by `tests/providers.rs`.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::ProviderError;
use crate::event::Retry;

/// A running child process.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
}

/// The three pipes of a [`Program`].
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

impl Program {
    /// Starts `program`. `help` tells how to get it when it is not there.
    pub(crate) fn start(
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        help: &str,
    ) -> Result<(Self, Pipes), ProviderError> {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
                    ProviderError::Unavailable { what: name.clone(), help: help.to_owned() }
                }
                // Out of processes, files or memory: it may work in a while.
                _ => ProviderError::Broken { why: format!("cannot start {name}: {e}"), retry: Retry::Later },
            })?;
        let pipes = Pipes {
            stdin: child.stdin.take().expect("piped above"),
            stdout: child.stdout.take().expect("piped above"),
            stderr: child.stderr.take().expect("piped above"),
        };
        Ok((Program { name, child }, pipes))
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn wait(&mut self) -> Result<ExitStatus, ProviderError> {
        self.child.wait().await.map_err(|e| self.broke("waiting", &e))
    }

    /// Ends it and waits until it is gone. One that has ended already is only reaped.
    pub(crate) async fn kill(mut self) {
        // It fails only when the process is gone already, and then nothing is left to do.
        let _ = self.child.kill().await;
    }

    /// The error for a pipe that failed while `doing`.
    pub(crate) fn broke(&self, doing: &str, e: &io::Error) -> ProviderError {
        ProviderError::Broken { why: format!("{} broke off while {doing}: {e}", self.name), retry: Retry::Now }
    }
}
