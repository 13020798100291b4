//! Helpers of the browser test: the measuring stick (signals, tails, speech, recorded clips) with its own tests on made-up
//! signals, and the processes it measures (browser, server).

pub(crate) mod browser;
pub(crate) mod clips;
pub(crate) mod served;
pub(crate) mod signal;
pub(crate) mod speech;
pub(crate) mod table;
pub(crate) mod tail;
pub(crate) mod witness;
