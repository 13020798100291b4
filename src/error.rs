//! `error`: the sum of the rooms' errors, for those who just want `?`. Part of the facade; no room uses it.

use crate::engine::OpenError;
use crate::event::Retry;
use crate::id::BadId;
use crate::provider::ProviderError;
use crate::store::StoreError;

/// Any error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A session was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A log could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A provider did not do its work.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A text is not an id.
    #[error(transparent)]
    Id(#[from] BadId),
    /// A browser's offer was not taken.
    #[cfg(feature = "webrtc")]
    #[error(transparent)]
    Offer(#[from] crate::transport::webrtc::OfferError),
    /// A configuration cannot be used.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Config(#[from] crate::server::config::ConfigError),
    /// The server could not serve.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Serve(#[from] crate::server::ServeError),
}

impl Error {
    /// Whether the same may be tried again.
    pub fn retry(&self) -> Retry {
        match self {
            Error::Open(error) => error.retry(),
            Error::Store(error) => error.retry(),
            Error::Provider(error) => error.retry(),
            Error::Id(_) => Retry::Never,
            #[cfg(feature = "webrtc")]
            Error::Offer(crate::transport::webrtc::OfferError::Unavailable { .. }) => Retry::Later,
            #[cfg(feature = "webrtc")]
            Error::Offer(_) => Retry::Never,
            #[cfg(feature = "server")]
            Error::Config(_) | Error::Serve(_) => Retry::AskAgain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_keeps_what_its_parts_say() {
        let error = Error::from(OpenError::Full { limit: 3 });
        assert_eq!(error.to_string(), "all 3 sessions are taken");
        assert_eq!(error.retry(), Retry::Later);
        assert_eq!(Error::from(BadId).retry(), Retry::Never);
    }
}
