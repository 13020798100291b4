//! `audio`: to be filled.
