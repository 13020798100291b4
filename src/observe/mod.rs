//! `observe`: to be filled.
