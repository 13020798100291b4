//! `fingerprint`: a machine's state as text, for a search that must know whether it has been there before.
//!
//! Left out, because nothing is decided by them: what was merely counted (`counted`, `noted`), what is the same in all states of one
//! search (`policy`, `tools`, `session`, `retrieves`), and what is computed anew from the rest after every step (`timers`, `out`).
//! The words of people and models are left out by [`crate::event::Pii`]; of them only whether there are any decides, which is told.

use std::fmt;

use crate::turn::Machine;

impl Machine {
    /// Writes what the next steps depend on. Stamps and seqs stand in it as `Stamp(n)` and `Seq(n)`, so that a reader can take them
    /// relative to the present moment and the last record.
    #[doc(hidden)]
    pub fn fingerprint(&self, to: &mut impl fmt::Write) -> fmt::Result {
        // Taken apart whole, so that a new field cannot be forgotten here.
        let Machine {
            policy: _,
            now: _,
            gate,
            floor,
            utterances,
            ears,
            errands,
            session: _,
            tools: _,
            retrieves: _,
            calls,
            pending,
            kept,
            left,
            turns,
            history,
            pause,
            tails,
            answers,
            link,
            draining,
            ending,
            began,
            restored,
            has_header,
            last_task,
            zombies,
            retired,
            orphans,
            counted: _,
            noted: _,
            timers: _,
            out: _,
            sabotage,
        } = self;
        write!(to, "{gate:?}{floor:?}{utterances:?}{ears:?}{errands:?}{calls:?}{pending:?}{kept:?}{left:?}{turns:?}")?;
        write!(to, "{history:?}{pause:?}{tails:?}{answers:?}{link:?}{draining}{ending:?}{began}{restored}{has_header}")?;
        write!(to, "{last_task:?}{zombies:?}{retired:?}{orphans:?}{sabotage:?}")?;
        let wordless = |turn: &super::turns::Turn| turn.input.as_ref().is_some_and(|input| input.reveal().is_empty());
        for turn in turns.live.iter().chain(&turns.closing) {
            write!(to, "{}", wordless(turn))?;
        }
        Ok(())
    }
}
