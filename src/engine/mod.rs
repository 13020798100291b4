//! `engine`: to be filled.
