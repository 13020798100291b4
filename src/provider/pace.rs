//! `Pace`: how fast an answer shall be spoken, and how a model tells a synthesizer.
//!
//! * Layer 2. A model and a synthesizer know nothing of each other; text is all that runs between them. So the pace travels in the
//!   text, as one invisible character (a Unicode variation selector, which every display ignores) before the words it is for.
//! * A synthesizer that understands it (espeak does) speaks so from there on and is silent about the character itself, which still
//!   counts as one of the text. One that does not understand it has nothing to pronounce.
//! * The law: `Pace::from_mark(pace.mark()) == Some(pace)`.

/// How fast to speak, in steps from slowest to fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pace {
    /// 55 % of the usual rate.
    Slowest,
    /// 70 %.
    Slower,
    /// 85 %.
    Slow,
    /// The rate the synthesizer was made with.
    #[default]
    Usual,
    /// 120 %.
    Fast,
    /// 140 %.
    Faster,
    /// 165 %.
    Fastest,
}

/// All of them, slowest first.
const ALL: [Pace; 7] = [Pace::Slowest, Pace::Slower, Pace::Slow, Pace::Usual, Pace::Fast, Pace::Faster, Pace::Fastest];
/// The mark of the slowest: variation selector 1; the others follow it.
const FIRST_MARK: u32 = 0xFE00;

impl Pace {
    /// Per cent of the usual rate.
    pub const fn percent(self) -> u32 {
        match self {
            Pace::Slowest => 55,
            Pace::Slower => 70,
            Pace::Slow => 85,
            Pace::Usual => 100,
            Pace::Fast => 120,
            Pace::Faster => 140,
            Pace::Fastest => 165,
        }
    }

    /// One step slower; the slowest stays.
    #[must_use]
    pub fn slower(self) -> Pace {
        ALL[(self as usize).saturating_sub(1)]
    }

    /// One step faster; the fastest stays.
    #[must_use]
    pub fn faster(self) -> Pace {
        ALL[(self as usize + 1).min(ALL.len() - 1)]
    }

    /// The invisible character that sets this pace for the text after it.
    pub fn mark(self) -> char {
        char::from_u32(FIRST_MARK + self as u32).expect("a variation selector")
    }

    /// The pace that `c` sets, if it is such a mark.
    pub fn from_mark(c: char) -> Option<Pace> {
        (c as u32).checked_sub(FIRST_MARK).and_then(|k| ALL.get(k as usize).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_and_rates_rise() {
        assert!(ALL.iter().all(|&p| Pace::from_mark(p.mark()) == Some(p)));
        assert!(ALL.is_sorted_by_key(|p| p.percent()));
        assert!("any text, 7 – ü\u{fe0f}".chars().all(|c| Pace::from_mark(c).is_none()));
        assert_eq!((Pace::Slowest.slower(), Pace::Usual.slower(), Pace::Usual.faster()), (Pace::Slowest, Pace::Slow, Pace::Fast));
        assert_eq!(Pace::Fastest.faster(), Pace::Fastest);
    }
}
