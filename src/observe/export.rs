//! Prometheus text (format 0.0.4) of [`Metrics`] and of the numbers that others hand in.
//!
//! Names carry their unit and end with it; counters end in `_total`.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use super::table::{Counts, Times};
use super::{Histogram, Metrics};

/// The content type of [`prometheus`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the tails' and latencies' buckets, milliseconds: fine where people notice, coarse where they have noticed.
const BOUNDS_MS: [u64; 20] =
    [5, 10, 20, 30, 40, 60, 80, 100, 150, 200, 250, 300, 400, 600, 800, 1_000, 2_000, 5_000, 30_000, 300_000];

/// A number that is not in the records: a queue's counter, how many sessions there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Handed {
    /// Its name. A counter's is written with `_total` at the end, whether it stands here or not.
    pub name: String,
    /// What it counts, without a full stop.
    pub help: String,
    /// What kind of number.
    pub kind: HandedKind,
    /// Its value.
    pub value: f64,
}

/// What kind of number a [`Handed`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
}

/// Everything as Prometheus text. The same name twice in `handed` is written once, the first.
pub fn prometheus(metrics: &Metrics, handed: impl IntoIterator<Item = Handed>) -> String {
    let mut unique: Vec<Handed> = Vec::new();
    for number in handed {
        if !unique.iter().any(|known| known.name == number.name) {
            unique.push(number);
        }
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Picture { metrics: metrics.clone(), handed: unique }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

/// One moment's numbers, as the encoder wants them.
#[derive(Debug)]
struct Picture {
    metrics: Metrics,
    handed: Vec<Handed>,
}

impl Collector for Picture {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        for Times { name, help, label, values } in self.metrics.times() {
            let name = format!("antiphon_{name}_seconds");
            let mut family = to.encode_descriptor(&name, help, None, MetricType::Histogram)?;
            for (value, times) in values {
                match label {
                    "" => histogram(&mut family, times)?,
                    label => histogram(&mut family.encode_family(&[(label, value)])?, times)?,
                }
            }
        }
        for Counts { name, help, label, values } in self.metrics.counts() {
            let name = format!("antiphon_{name}");
            let mut family = to.encode_descriptor(&name, help, None, MetricType::Counter)?;
            for (value, number) in values {
                match label {
                    "" => count(&mut family, number)?,
                    label => count(&mut family.encode_family(&[(label, value)])?, number)?,
                }
            }
        }
        let help = "Calls of unknown outcome, or after which a person has to look";
        let open = self.metrics.calls().open();
        to.encode_descriptor("antiphon_open_reconciliations", help, None, MetricType::Gauge)?.encode_gauge(&open)?;
        for Handed { name, help, kind, value } in &self.handed {
            match kind {
                HandedKind::Counter => {
                    // The encoder writes the suffix itself.
                    let stem = name.strip_suffix("_total").unwrap_or(name);
                    let mut number = to.encode_descriptor(stem, help, None, MetricType::Counter)?;
                    number.encode_counter(value, None::<&Exemplar<NoLabelSet, f64>>)?;
                }
                HandedKind::Gauge => to.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)?,
            }
        }
        Ok(())
    }
}

fn count(to: &mut MetricEncoder<'_>, value: u64) -> fmt::Result {
    to.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)
}

fn histogram(to: &mut MetricEncoder<'_>, values: &Histogram) -> fmt::Result {
    let mut before = 0;
    let mut buckets = [(f64::INFINITY, 0); BOUNDS_MS.len() + 1];
    for (bucket, bound) in buckets.iter_mut().zip(BOUNDS_MS) {
        let up_to = values.count_up_to(Duration::from_millis(bound));
        *bucket = (bound as f64 / 1_000.0, up_to - before);
        before = up_to;
    }
    buckets[BOUNDS_MS.len()].1 = values.count() - before;
    to.encode_histogram::<NoLabelSet>(values.sum().as_secs_f64(), values.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Record, Tail, VERSION};
    use crate::id::{Generation, Seq, SessionId, TurnId};
    use crate::time::{SamplePos, Stamp};

    fn with_a_tail(to_silence_us: u64) -> Metrics {
        let tail = Tail { detect_us: to_silence_us, to_silence_us, to_cut_us: to_silence_us + 50_000, ..Tail::default() };
        let event = Event::Silenced { stale: Generation(1), last_sample: SamplePos(9), tail: Some(tail) };
        let record = Record { v: VERSION, seq: Seq(1), at: Stamp::ZERO, turn: Some(TurnId(1)), generation: Generation(2), event };
        Metrics::from_records([(SessionId::from_bits(1), record)])
    }

    #[test]
    fn the_tail_is_a_histogram_with_a_stage_label() {
        let text = prometheus(&with_a_tail(170_000), []);
        for line in [
            "# TYPE antiphon_audible_tail_seconds histogram",
            r#"antiphon_audible_tail_seconds_bucket{stage="to_silence",le="0.15"} 0"#,
            r#"antiphon_audible_tail_seconds_bucket{stage="to_silence",le="0.2"} 1"#,
            r#"antiphon_audible_tail_seconds_bucket{stage="to_silence",le="+Inf"} 1"#,
            r#"antiphon_audible_tail_seconds_sum{stage="to_silence"} 0.17"#,
            r#"antiphon_audible_tail_seconds_count{stage="to_cut"} 1"#,
            r#"antiphon_audible_tail_seconds_count{stage="to_hold"} 0"#,
            r#"antiphon_audible_tails_total{downstream="declared"} 1"#,
            r#"antiphon_late_events_total{outcome="delivered"} 0"#,
            "antiphon_terminal_conflicts_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is missing from\n{text}");
        }
    }

    #[test]
    fn handed_numbers_stand_beside_the_measured_ones_once() {
        let number = |name: &str, kind, value| Handed { name: name.into(), help: "What it is".into(), kind, value };
        let handed = [
            number("antiphon_sessions", HandedKind::Gauge, 3.0),
            number("antiphon_stt_gap_total", HandedKind::Counter, 7.0),
            number("antiphon_sessions", HandedKind::Gauge, 4.0),
        ];
        let text = prometheus(&Metrics::new(), handed);
        assert_eq!(text.lines().filter(|l| l.starts_with("antiphon_sessions ")).collect::<Vec<_>>(), ["antiphon_sessions 3.0"]);
        assert!(text.contains("\n# TYPE antiphon_stt_gap_total counter\nantiphon_stt_gap_total 7.0\n"), "{text}");
    }
}
