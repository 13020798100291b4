//! Logs: `tracing` to standard error, as text or JSON. Personal content is kept out by its type ([`crate::event::Pii`]).

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::config::{ConfigError, LogConfig, LogFormat};

/// A subscriber that writes to `to` as `config` says. An unreadable filter is a [`ConfigError::BadValue`].
pub fn subscriber<W>(config: &LogConfig, to: W) -> Result<Box<dyn Subscriber + Send + Sync>, ConfigError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| ConfigError::BadValue {
        key: "log.filter",
        why: format!("is {:?}: {error}", config.filter),
        from: None,
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(to);
    Ok(match config.format {
        // Colour codes help nobody in a file, and a terminal is not worth a second guess.
        LogFormat::Text => Box::new(lines.with_ansi(false).finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    })
}

/// Installs the subscriber for the whole process, on standard error. A second call changes nothing.
pub fn init(config: &LogConfig) -> Result<(), ConfigError> {
    let subscriber = subscriber(config, std::io::stderr)?;
    // Someone who embeds the server may have installed theirs; it stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}
