//! Reads what two pocketsphinx decoders made of one utterance and says which to believe. Layer 2, pure.
//!
//! One decoder knows only the commands of the dialogue (a grammar), the other the whole language. The grammar always finds *some*
//! command, so it is believed only when its words cover what was spoken, last as long as words do, and explain the sound about as
//! well as free words do. The limits were measured, see [`Decoding::is_plausible_command`].

/// What one decoder said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Decoding {
    /// Its words, without fillers.
    pub(super) text: String,
    segments: Vec<Segment>,
}

/// One row of a decoder's table.
#[derive(Clone, Debug, PartialEq)]
struct Segment {
    filler: bool,
    /// In frames of 10 ms, both counted.
    from: u32,
    to: u32,
    /// Acoustic cost: how badly the sound fits.
    cost: i64,
}

/// How a decoder writes its acoustic scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// As they are (grammars).
    Plain,
    /// Times 1024 (language models).
    Shifted,
}

impl Decoding {
    /// Reads a decoder's output and its log with the table that `-backtrace yes` asks for. Rows that are no rows are passed over.
    pub(super) fn read(stdout: &str, log: &str, scale: Scale) -> Self {
        let is_filler = |w: &str| w.starts_with(['<', '[', '+', '(']);
        let words: Vec<&str> = stdout.split_whitespace().filter(|w| !is_filler(w)).collect();
        let row = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let word = fields.next()?;
            let (from, to) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            fields.next()?.parse::<f32>().ok()?;
            let score: i64 = fields.next()?.parse().ok()?;
            fields.next()?.parse::<i64>().ok()?;
            fields.next()?.parse::<i64>().ok()?;
            let cost = match scale {
                Scale::Plain => -score,
                Scale::Shifted => -(score >> 10),
            };
            // `(NULL)` rows of a grammar have no length.
            (fields.next().is_none() && from <= to && word != "(NULL)").then(|| Segment { filler: is_filler(word), from, to, cost })
        };
        Decoding { text: words.join(" "), segments: log.lines().filter_map(row).collect() }
    }

    fn words(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|s| !s.filler)
    }

    /// Frames inside words.
    fn spoken(&self) -> u32 {
        self.words().map(|s| s.to - s.from + 1).sum()
    }

    fn cost(&self) -> i64 {
        self.segments.iter().map(|s| s.cost).sum()
    }

    /// Whether this, from the grammar, is to be believed when free words gave `free`.
    ///
    /// Measured on 84 commands spoken by four synthetic voices and 73 recordings of people who mostly say something else. Of the
    /// commands 68 are believed and right (free words alone get 15), 8 are believed and wrong. Of the 38 recordings of sentences
    /// one is taken for a command; of the 35 of single words, which are as long as commands, every other one.
    fn is_plausible_command(&self, free: &Decoding) -> bool {
        /// Of the time from the first word to the last, in words.
        const COVER: f32 = 0.8;
        /// A word longer than this is a stretch of something else, frames.
        const LONGEST: u32 = 100;
        /// Mean length of the words at least, frames; a command of one word must last longer, as any syllable fits one.
        const SHORTEST: u32 = 14;
        const SHORTEST_ALONE: u32 = 25;
        /// Of the words that were heard freely, this part must be in the command.
        const OF_FREE: f32 = 0.6;
        /// How much worse than free words it may explain the sound, cost a frame of words.
        const WORSE: f32 = 8.0;
        if self.text == free.text {
            return true;
        }
        let (Some(first), Some(last)) = (self.words().map(|s| s.from).min(), self.words().map(|s| s.to).max()) else {
            return false;
        };
        let span = last - first + 1;
        let spoken = self.spoken();
        let longest = self.words().map(|s| s.to - s.from + 1).max().unwrap_or(0);
        let count = self.words().count() as u32;
        let worse = (self.cost() - free.cost()) as f32 / span as f32;
        spoken as f32 >= COVER * span as f32
            && longest <= LONGEST
            && span >= count * if count == 1 { SHORTEST_ALONE } else { SHORTEST }
            && spoken as f32 >= OF_FREE * free.spoken() as f32
            && (worse <= WORSE || free.segments.is_empty())
    }
}

/// The text to believe.
pub(super) fn verdict(command: Option<Decoding>, free: Decoding) -> String {
    match command {
        Some(command) if !command.text.is_empty() && command.is_plausible_command(&free) => command.text,
        _ => free.text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "\
INFO: pocketsphinx.c(1168): repeat that (-4356)
word                 start end   pprob ascr       lscr       lback
<sil>                0     28    1.000 -569       -337       1
repeat               29    64    1.000 -1396      0          1
(NULL)               64    64    1.000 0          0          1
that(2)              65    116   1.000 -1159      0          1
<sil>                117   164   1.000 -558       -337       1
INFO: cmn_live.c(120): Update from < 36.69 -5.86 -7.34 14.19 -4.92 -0.63 >";
    const FREE: &str = "\
word                 start end   pprob ascr       lscr       lback
<s>                  0     27    1.000 -522240    0          1
INFO: something between the rows 1 2 3
we                   28    63    0.857 -1221632   -274       2
<sil>                64    77    0.905 -1180672   -524288    2
got                  78    116   0.798 -1438720   -422       1
</s>                 117   164   1.000 -768000    -169       1";

    #[test]
    fn a_command_that_explains_the_sound_is_believed() {
        let command = Decoding::read("repeat that\n", COMMAND, Scale::Plain);
        let free = Decoding::read("we got\n", FREE, Scale::Shifted);
        assert_eq!((command.spoken(), command.cost()), (88, 3_682));
        assert_eq!((free.spoken(), free.cost()), (75, 510 + 1_193 + 1_153 + 1_405 + 750));
        assert_eq!(verdict(Some(command), free), "repeat that");
    }

    #[test]
    fn a_command_squeezed_into_a_long_sentence_is_not() {
        let command = Decoding::read("repeat that", COMMAND, Scale::Plain);
        let sentence = FREE.replace("78    116", "78    516");
        assert_eq!(verdict(Some(command.clone()), Decoding::read("we got", &sentence, Scale::Shifted)), "we got");
        let fits_better = FREE.replace("-1221632", "-102400").replace("-1438720", "-102400");
        assert_eq!(verdict(Some(command), Decoding::read("we got", &fits_better, Scale::Shifted)), "we got");
    }

    #[test]
    fn nonsense_and_silence_give_what_is_there() {
        assert_eq!(verdict(None, Decoding::read("", "", Scale::Shifted)), "");
        let free = Decoding::read("<s> hello [NOISE] ++UM++ there </s>\n", "garbage\nx 1 2 z 4 5 6\n9 9", Scale::Shifted);
        assert_eq!(verdict(Some(Decoding::default()), free), "hello there");
    }
}
