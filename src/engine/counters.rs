//! The counters of the queues: one for everything that a full queue or a late beat cost. Names as in ARCHITECTURE.md's queue table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// A picture of the engine's counters. They only rise, except the gauges `sessions`, `tasks_alive` and `pumped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Sessions open now.
    pub sessions: u64,
    /// Provider tasks alive now, over all sessions.
    pub tasks_alive: u64,
    /// Sessions the pump serves now.
    pub pumped: u64,
    /// Blocks of voice evidence merged into the last one because the session did not keep up.
    pub speech_events_merged_total: u64,
    /// Microphone blocks (10 ms) lost on the way to the recogniser, which was told of each gap.
    pub stt_gap_total: u64,
    /// Times the playback ring was full and the synthesizer was held back. Normal: a synthesizer is faster than speech.
    pub playback_full_total: u64,
    /// Blocks that the ring refused because they were stale.
    pub playback_stale_total: u64,
    /// Playout reports dropped because the session did not keep up; the next one is cumulative.
    pub playout_report_lost_total: u64,
    /// The client's playout reports dropped because the pump did not keep up; the next one is cumulative.
    pub client_report_lost_total: u64,
    /// Time records waited for room in the store's queue, seconds.
    pub store_wait_seconds: f64,
    /// Links closed because their client did not read.
    pub link_lagged_total: u64,
    /// Record readers that fell behind and read on from the store.
    pub reader_lagged_total: u64,
    /// Requests answered `busy` because too many were waiting.
    pub busy_total: u64,
    /// Tasks that went on after they were aborted (a provider that blocks its thread).
    pub tasks_orphaned_total: u64,
    /// Provider tasks that panicked.
    pub task_panics_total: u64,
    /// Sessions whose link panicked in the pump.
    pub link_panics_total: u64,
    /// Times a tool's phases filled their queue, so that the tool was held back.
    pub tool_phases_full_total: u64,
    /// Calls forgotten before their turn was over, because one session had too many.
    pub calls_forgotten_total: u64,
    /// Open reconciliations that are no longer listed because too many were; their logs still tell them.
    pub unreconciled_dropped_total: u64,
    /// Microphone packets that were not there when their time came (late ones among them), over all links.
    pub mic_packets_lost_total: u64,
    /// Of the lost, those recovered from their successor.
    pub mic_packets_recovered_total: u64,
    /// Microphone packets pushed out because too many waited.
    pub mic_packets_overflowed_total: u64,
    /// Packets to the far end that were dropped because the wire did not take them in time.
    pub speaker_packets_dropped_total: u64,
    /// Beats that began more than half a beat late.
    pub beats_late_total: u64,
    /// Beats left out after a pause of the machine.
    pub beats_skipped_total: u64,
}

/// The living counters, shared by all sessions and the pump.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) tasks_alive: AtomicU64,
    pub(super) pumped: AtomicU64,
    pub(super) speech_merged: AtomicU64,
    pub(super) stt_gap: AtomicU64,
    pub(super) playback_full: AtomicU64,
    pub(super) playback_stale: AtomicU64,
    pub(super) playout_lost: AtomicU64,
    pub(super) client_report_lost: AtomicU64,
    pub(super) store_wait_us: AtomicU64,
    pub(super) link_lagged: AtomicU64,
    pub(super) reader_lagged: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) tasks_orphaned: AtomicU64,
    pub(super) task_panics: AtomicU64,
    pub(super) link_panics: AtomicU64,
    pub(super) tool_phases_full: AtomicU64,
    pub(super) calls_forgotten: AtomicU64,
    pub(super) unreconciled_dropped: AtomicU64,
    pub(super) mic_lost: AtomicU64,
    pub(super) mic_recovered: AtomicU64,
    pub(super) mic_overflowed: AtomicU64,
    pub(super) speaker_dropped: AtomicU64,
    pub(super) beats_late: AtomicU64,
    pub(super) beats_skipped: AtomicU64,
}

/// Counts one.
pub(super) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Counts `n`.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Tally {
    pub(super) fn picture(&self, sessions: usize) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            sessions: sessions as u64,
            tasks_alive: read(&self.tasks_alive),
            pumped: read(&self.pumped),
            speech_events_merged_total: read(&self.speech_merged),
            stt_gap_total: read(&self.stt_gap),
            playback_full_total: read(&self.playback_full),
            playback_stale_total: read(&self.playback_stale),
            playout_report_lost_total: read(&self.playout_lost),
            client_report_lost_total: read(&self.client_report_lost),
            store_wait_seconds: Duration::from_micros(read(&self.store_wait_us)).as_secs_f64(),
            link_lagged_total: read(&self.link_lagged),
            reader_lagged_total: read(&self.reader_lagged),
            busy_total: read(&self.busy),
            tasks_orphaned_total: read(&self.tasks_orphaned),
            task_panics_total: read(&self.task_panics),
            link_panics_total: read(&self.link_panics),
            tool_phases_full_total: read(&self.tool_phases_full),
            calls_forgotten_total: read(&self.calls_forgotten),
            unreconciled_dropped_total: read(&self.unreconciled_dropped),
            mic_packets_lost_total: read(&self.mic_lost),
            mic_packets_recovered_total: read(&self.mic_recovered),
            mic_packets_overflowed_total: read(&self.mic_overflowed),
            speaker_packets_dropped_total: read(&self.speaker_dropped),
            beats_late_total: read(&self.beats_late),
            beats_skipped_total: read(&self.beats_skipped),
        }
    }
}
