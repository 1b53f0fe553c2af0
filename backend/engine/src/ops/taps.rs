//! Which inputs make an output along one axis, and with what weights, for every kind of resampling.
//!
//! Indices and weights as in torch's `native/UpSample.h` and `native/cpu/UpSampleKernel.cpp`, in the precision they
//! are computed in there.

/// For each output, inputs and weights; all lists of one length.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    pub input: i64,
    pub rows: Vec<Vec<(i64, f64)>>,
    /// Rows had several lengths: zero weights are fillers, whose elements do not count, be they NaN.
    pub filled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nearest,
    NearestExact,
    Linear,
    Cubic,
    /// Antialiased: triangle, cubic, Lanczos.
    Smooth(Filter),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Linear,
    Cubic,
    Lanczos,
}

/// One axis to resample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resize {
    pub kind: Kind,
    pub input: i64,
    pub output: i64,
    pub align_corners: bool,
    /// The scale factor, if the caller gave one.
    pub scale: Option<f64>,
    /// Compute in double.
    pub double: bool,
}

impl Resize {
    fn round(&self, x: f64) -> f64 {
        if self.double { x } else { f64::from(x as f32) }
    }

    /// Inputs an output apart.
    fn step(&self) -> f64 {
        let (input, output) = (self.input as f64, self.output as f64);
        let step = match (self.align_corners, self.scale) {
            (true, _) if self.output > 1 => (input - 1.0) / (output - 1.0),
            (true, _) => 0.0,
            (false, Some(scale)) if scale > 0.0 => 1.0 / scale,
            (false, _) => input / output,
        };
        self.round(step)
    }

    /// The point of the input that output `i` lies at.
    fn source(&self, i: i64, cubic: bool) -> f64 {
        let step = self.step();
        if self.align_corners {
            return self.round(step * i as f64);
        }
        let source = self.round(self.round(step * (i as f64 + 0.5)) - 0.5);
        if cubic { source } else { source.max(0.0) }
    }

    fn row(&self, i: i64) -> Vec<(i64, f64)> {
        let last = self.input - 1;
        match self.kind {
            Kind::Nearest if self.output == self.input => vec![(i, 1.0)],
            Kind::Nearest if self.output == 2 * self.input => vec![(i / 2, 1.0)],
            Kind::Nearest => {
                let source = self.round(self.step() * i as f64);
                vec![((source.floor() as i64).min(last), 1.0)]
            }
            Kind::NearestExact => {
                let source = self.round(self.step() * (i as f64 + 0.5));
                vec![((source.floor() as i64).min(last), 1.0)]
            }
            Kind::Linear if self.output == self.input => vec![(i, 1.0)],
            Kind::Linear => {
                let source = self.source(i, false);
                let low = (source.floor() as i64).min(last);
                let rest = self.round(source - low as f64).clamp(0.0, 1.0);
                let high = (low + 1).min(last);
                vec![(low, self.round(1.0 - rest)), (high, rest)]
            }
            Kind::Cubic => {
                let source = self.source(i, true);
                let low = (source.floor() as i64).min(last);
                let t = self.round(source - low as f64).clamp(0.0, 1.0);
                let near = |x: f64| (1.25 * x - 2.25) * x * x + 1.0;
                let far = |x: f64| ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0;
                let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
                let tap = |(k, weight): (i64, f64)| ((low - 1 + k).clamp(0, last), weight);
                (0..).zip(weights).map(tap).collect()
            }
            Kind::Smooth(filter) => self.smooth(filter, i),
        }
    }

    fn smooth(&self, filter: Filter, i: i64) -> Vec<(i64, f64)> {
        let step = self.step();
        let stretch = step.max(1.0);
        let support = filter.size() * 0.5 * stretch;
        let center = self.round(step * (i as f64 + 0.5));
        let first = ((center - support + 0.5) as i64).max(0);
        let end = ((center + support + 0.5) as i64).min(self.input);
        let weight = |j: i64| filter.at((j as f64 - center + 0.5) / stretch);
        let total: f64 = (first..end).map(weight).sum();
        let total = if total == 0.0 { 1.0 } else { total };
        (first..end).map(|j| (j, weight(j) / total)).collect()
    }

    pub(crate) fn taps(&self) -> Taps {
        Taps::new(self.input, (0..self.output).map(|i| self.row(i)).collect())
    }
}

impl Filter {
    fn size(self) -> f64 {
        match self {
            Self::Linear => 2.0,
            Self::Cubic => 4.0,
            Self::Lanczos => 6.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let x = x.abs();
        let sinc = |x: f64| {
            let angle = x * std::f64::consts::PI;
            if x == 0.0 { 1.0 } else { angle.sin() / angle }
        };
        match self {
            Self::Linear => (1.0 - x).max(0.0),
            Self::Cubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Cubic if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

impl Taps {
    /// Shorter rows are filled up with their own first tap at weight zero.
    fn new(input: i64, mut rows: Vec<Vec<(i64, f64)>>) -> Self {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let filled = rows.iter().any(|row| row.len() < width);
        for row in &mut rows {
            let filler = row.first().map_or(0, |tap| tap.0);
            row.resize(width, (filler, 0.0));
        }
        Self {
            input,
            rows,
            filled,
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// The adjoint: which outputs an input went into.
    pub(crate) fn transposed(&self) -> Self {
        let mut rows = vec![Vec::new(); self.input as usize];
        for (output, row) in (0..).zip(&self.rows) {
            for &(input, weight) in row.iter().filter(|(_, weight)| *weight != 0.0) {
                let targets: &mut Vec<(i64, f64)> = &mut rows[input as usize];
                match targets.last_mut() {
                    Some((last, sum)) if *last == output => *sum += weight,
                    _ => targets.push((output, weight)),
                }
            }
        }
        Self::new(self.rows.len() as i64, rows)
    }

    /// Row-major weights, outputs by inputs.
    pub(crate) fn matrix(&self) -> Vec<f64> {
        let width = self.input as usize;
        let mut matrix = vec![0.0; self.rows.len() * width];
        for (output, row) in self.rows.iter().enumerate() {
            for &(input, weight) in row {
                matrix[output * width + input as usize] += weight;
            }
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_taps_and_their_adjoint() {
        let resize = Resize {
            kind: Kind::Linear,
            input: 2,
            output: 4,
            align_corners: false,
            scale: None,
            double: false,
        };
        let taps = resize.taps();
        assert_eq!(taps.rows[1], vec![(0, 0.75), (1, 0.25)]);
        assert_eq!(taps.rows[3], vec![(1, 0.75), (1, 0.25)]);
        let back = taps.transposed();
        assert_eq!(back.rows[0], vec![(0, 1.0), (1, 0.75), (2, 0.25)]);
    }
}
