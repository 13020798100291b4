//! memory link
