//! `server`: to be filled.
