//! `store`: to be filled.
