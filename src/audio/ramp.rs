//! Ramps: how sound begins and stops without a click.

/// Length of a ramp: 5 ms at the house rate.
pub(crate) const RAMP_SAMPLES: usize = 240;

const _: () = assert!(RAMP_SAMPLES * 2 == crate::time::BLOCK_SAMPLES, "a ramp is half a block");

/// A gain that moves in a straight line to its target, one step per sample it is applied to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    value: f32,
    target: f32,
    step: f32,
    left: usize,
}

impl Ramp {
    /// A gain that rests at `value`.
    pub(crate) const fn at(value: f32) -> Self {
        Ramp { value, target: value, step: 0.0, left: 0 }
    }

    /// The gain that the last sample got.
    pub(crate) const fn value(&self) -> f32 {
        self.value
    }

    /// Where it goes.
    pub(crate) const fn target(&self) -> f32 {
        self.target
    }

    /// Goes to `target` within the next `samples` samples, reaching it with the last of them.
    pub(crate) fn go(&mut self, target: f32, samples: usize) {
        self.target = target;
        self.left = samples;
        self.step = if samples == 0 { 0.0 } else { (target - self.value) / samples as f32 };
        if samples == 0 {
            self.value = target;
        }
    }

    /// Adds `from` times the gain to `to`, sample by sample. Both have the same length.
    pub(crate) fn add(&mut self, from: &[f32], to: &mut [f32]) {
        debug_assert_eq!(from.len(), to.len(), "as many samples in as out");
        let moving = self.left.min(from.len());
        for (x, y) in from[..moving].iter().zip(&mut to[..moving]) {
            *y += x * self.next();
        }
        if self.value == 1.0 {
            to[moving..].iter_mut().zip(&from[moving..]).for_each(|(y, x)| *y += x);
        } else if self.value != 0.0 {
            to[moving..].iter_mut().zip(&from[moving..]).for_each(|(y, x)| *y += x * self.value);
        }
    }

    /// Multiplies `samples` by the gain.
    pub(crate) fn scale(&mut self, samples: &mut [f32]) {
        let moving = self.left.min(samples.len());
        for x in &mut samples[..moving] {
            *x *= self.next();
        }
        if self.value != 1.0 {
            samples[moving..].iter_mut().for_each(|x| *x *= self.value);
        }
    }

    fn next(&mut self) -> f32 {
        self.left -= 1;
        self.value = if self.left == 0 { self.target } else { self.value + self.step };
        self.value
    }
}

/// What is left of a sound that stopped in the middle: its last value, going to zero in a straight line. It replaces the jump to
/// silence, which is a click.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Residue {
    value: f32,
    left: usize,
}

impl Residue {
    /// A sound stopped with `value`; it is to be gone after `samples` samples. What is still left of an earlier one goes with it.
    pub(crate) fn start(&mut self, value: f32, samples: usize) {
        let value = if self.left > 0 { self.value + value } else { value };
        *self = if value == 0.0 { Residue::default() } else { Residue { value, left: samples } };
    }

    /// Makes it end within the next `samples` samples.
    pub(crate) fn shorten(&mut self, samples: usize) {
        self.left = self.left.min(samples);
    }

    /// Adds it to `to` and returns how many samples it touched.
    pub(crate) fn add(&mut self, to: &mut [f32]) -> usize {
        let n = self.left.min(to.len());
        for y in &mut to[..n] {
            self.value -= self.value / self.left as f32;
            self.left -= 1;
            *y += self.value;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_straight_and_ends_exactly() {
        let mut ramp = Ramp::at(0.0);
        ramp.go(1.0, 4);
        let mut out = [0.0; 6];
        ramp.add(&[1.0; 6], &mut out);
        assert_eq!(out, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        ramp.go(0.0, 2);
        ramp.scale(&mut out);
        assert_eq!(out, [0.125, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_residue_goes_to_zero_without_a_jump() {
        let mut residue = Residue::default();
        residue.start(0.8, 4);
        let mut out = [0.0; 6];
        assert_eq!(residue.add(&mut out[..2]), 2);
        assert_eq!(residue.add(&mut out[2..]), 2);
        for (got, want) in out.iter().zip([0.6, 0.4, 0.2, 0.0, 0.0, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{out:?}");
        }
    }
}
