//! Special functions that StableHLO and CHLO do not have as such.

use std::f64::consts::PI;

use tpulab_stablehlo::{Binary, Reducer, Unary};

use super::formula::{Formula, finish, float_unary, floats, sign_bit};
use crate::error::{Error, Result};
use crate::lower::Ctx;
use crate::registry::{Lowered, Registry};

pub(crate) fn register(r: &mut Registry) {
    r.op("polygamma", polygamma).pointwise();
    r.op("mvlgamma", mvlgamma).pointwise();
    r.direct(&["mvlgamma"]);
    r.op("special_i0e", |c| float_unary(c, i0e)).pointwise();
    r.op("special_i1e", |c| {
        float_unary(c, |x| x.unary(Unary::BesselI1e))
    })
    .pointwise();
    r.op("special_i1", |c| {
        float_unary(c, |x| x.unary(Unary::BesselI1e) * x.abs().exp())
    })
    .pointwise();
    r.op("special_zeta", |c| {
        let ([s, q], dtype) = floats(c, ["self", "other"])?;
        let result = hurwitz(c, &s, &q)?;
        finish(c, &result, dtype)
    })
    .pointwise();
    r.op("special_entr", |c| float_unary(c, entr)).pointwise();
}

/// digamma, whose pole at zero has the sign of the zero.
pub(crate) fn digamma(x: &Formula) -> Formula {
    let pole = sign_bit(x).choose(f64::INFINITY, x * 0.0 - f64::INFINITY);
    x.eq(0.0).choose(pole, x.unary(Unary::Digamma))
}

/// The n-th derivative of digamma: (-1)^(n+1) n! ζ(n+1, x).
fn polygamma(c: &mut Ctx<'_>) -> Result<Lowered> {
    let n = c.int("n")?;
    if n < 0 {
        return Err(Error::runtime(
            "polygamma(n, x) does not support negative n.",
        ));
    }
    let ([x], dtype) = floats(c, ["self"])?;
    let result = match n {
        0 => digamma(&x),
        1 => trigamma(&x),
        _ => {
            let factorial: f64 = (1..=n).map(|k| k as f64).product();
            let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
            let value = x.build(&mut c.b)?;
            let order = c.b.splat_like(&value, n + 1)?;
            hurwitz(c, &Formula::from(order), &x)? * (sign * factorial)
        }
    };
    finish(c, &result, dtype)
}

/// ζ(s, x) of a constant s and positive x.
fn zeta(s: i64, x: &Formula) -> Formula {
    Formula::from(s as f64).binary(Binary::Zeta, x)
}

/// Left of this, terms are no longer added one by one.
const FAR_LEFT: f64 = -1e4;

/// ζ(s, q) = Σ (q + i)^-s. CHLO's expansion converges from q = 1 on: the terms before are added here.
fn hurwitz(c: &mut Ctx<'_>, s: &Formula, q: &Formula) -> Result<Formula> {
    let (s, q) = (s.build(&mut c.b)?, q.build(&mut c.b)?);
    let dims: Vec<usize> = (0..q.rank()).collect();
    let live = |a: &Formula| a.lt(1.0) & a.gt(FAR_LEFT);
    let zero = c.b.splat_like(&q, 0.0)?;
    let mut failure = None;
    let ended = c.b.while_loop(
        &[q.clone(), zero],
        |b, state| {
            let low = b.splat_like(&state[0], FAR_LEFT)?;
            let high = b.splat_like(&state[0], 1.0)?;
            let (above, below) = (b.gt(&state[0], &low)?, b.lt(&state[0], &high)?);
            let live = b.and(&above, &below)?;
            b.reduce_with(Reducer::Or, &live, &dims)
        },
        |b, state| {
            let (a, sum) = (Formula::from(&state[0]), Formula::from(&state[1]));
            let live = live(&a);
            let term = live.choose(a.pow(-Formula::from(&s)), 0.0);
            let next = live.choose(&a + 1.0, &a);
            match (next.build(b), (sum + term).build(b)) {
                (Ok(next), Ok(sum)) => Ok(vec![next, sum]),
                (Err(error), _) | (_, Err(error)) => {
                    failure = Some(error);
                    Ok(state.to_vec())
                }
            }
        },
    )?;
    if let Some(error) = failure {
        return Err(error);
    }
    let [a, sum] = ended.as_slice() else {
        return Err(Error::runtime("a loop of two values was expected"));
    };
    let (s, q) = (Formula::from(s), Formula::from(q));
    let value = Formula::from(sum) + s.binary(Binary::Zeta, a);
    // Poles at the integers up to 0, where no power of another order is real.
    let left = q.le(0.0);
    let value = (left.clone() & s.ne(s.floor())).choose(f64::NAN, value);
    let value = (left & q.eq(q.floor())).choose(f64::INFINITY, value);
    let value = s.lt(1.0).choose(f64::NAN, value);
    Ok(s.eq(1.0).choose(f64::INFINITY, value))
}

/// Reflected to the right half, where ζ(2, x) converges well: ψ'(1 - x) + ψ'(x) = π² / sin²(πx).
fn trigamma(x: &Formula) -> Formula {
    let left = x.lt(0.5);
    let right = zeta(2, &left.choose(1.0 - x, x));
    let sine = (x * PI).sin();
    let value = left.choose(PI * PI / sine.square() - &right, &right);
    x.eq(f64::INFINITY).choose(0.0, value)
}

/// The logarithm of the multivariate gamma function of p dimensions.
fn mvlgamma(c: &mut Ctx<'_>) -> Result<Lowered> {
    let p = c.int("p")?;
    if p < 1 {
        return Err(Error::runtime("p has to be greater than or equal to 1"));
    }
    let ([x], dtype) = floats(c, ["self"])?;
    let mut sum = x.lgamma();
    for j in 1..p {
        sum = sum + (&x - j as f64 / 2.0).lgamma();
    }
    let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
    finish(c, &(sum + constant), dtype)
}

/// Chebyshev coefficients, highest first, of exp(-x) I0(x) over x in \[0, 8\], in t = x / 4 - 1.
const I0_SMALL: [f64; 30] = [
    -4.415341646379439e-18,
    3.3307945188222384e-17,
    -2.431279846547955e-16,
    1.715391285555133e-15,
    -1.1685332877993451e-14,
    7.676185498604936e-14,
    -4.856446783111929e-13,
    2.95505266312964e-12,
    -1.726826291441556e-11,
    9.675809035373237e-11,
    -5.189795601635263e-10,
    2.6598237246823866e-09,
    -1.300025009986248e-08,
    6.046995022541919e-08,
    -2.670793853940612e-07,
    1.1173875391201037e-06,
    -4.4167383584587505e-06,
    1.6448448070728896e-05,
    -5.754195010082104e-05,
    0.00018850288509584165,
    -0.0005763755745385824,
    0.0016394756169413357,
    -0.004324309995050576,
    0.010546460394594998,
    -0.02373741480589947,
    0.04930528423967071,
    -0.09490109704804764,
    0.17162090152220877,
    -0.3046826723431984,
    0.6767952744094761,
];

/// The same of sqrt(x) exp(-x) I0(x) over x from 8 on, in t = 16 / x - 1.
const I0_LARGE: [f64; 27] = [
    1.193650890845982e-18,
    9.921475412173699e-19,
    -7.233180487874754e-18,
    -4.830504485944182e-18,
    4.46562142029676e-17,
    3.461222867697461e-17,
    -2.8276239805165836e-16,
    -3.425485619677219e-16,
    1.7725601330565263e-15,
    3.8116806693526224e-15,
    -9.554846698828307e-15,
    -4.150569347287222e-14,
    1.54008621752141e-14,
    3.8527783827421426e-13,
    7.180124451383666e-13,
    -1.7941785315068062e-12,
    -1.3215811840447713e-11,
    -3.1499165279632416e-11,
    1.1889147107846439e-11,
    4.94060238822497e-10,
    3.3962320257083865e-09,
    2.266668990498178e-08,
    2.0489185894690638e-07,
    2.8913705208347567e-06,
    6.889758346916825e-05,
    0.0033691164782556943,
    0.8044904110141088,
];

/// Clenshaw's sum of a Chebyshev series at `doubled` = 2t, its first coefficient halved.
fn chebyshev(doubled: &Formula, coefficients: &[f64]) -> Formula {
    let zero = doubled * 0.0;
    let (mut b0, mut b1, mut b2) = (zero.clone(), zero.clone(), zero);
    for &coefficient in coefficients {
        b2 = b1;
        b1 = b0.clone();
        b0 = doubled * &b1 - &b2 + coefficient;
    }
    (b0 - b2) * 0.5
}

/// exp(-|x|) I0(x)
fn i0e(x: &Formula) -> Formula {
    let x = x.abs();
    let small = chebyshev(&(&x * 0.5 - 2.0), &I0_SMALL);
    let large = chebyshev(&(32.0 / &x - 2.0), &I0_LARGE) / x.sqrt();
    x.le(8.0).choose(small, large)
}

/// The modified Bessel function of the first kind and order 0.
pub(crate) fn i0(x: &Formula) -> Formula {
    x.abs().exp() * i0e(x)
}

/// -x log(x), 0 at 0 and -inf below.
fn entr(x: &Formula) -> Formula {
    let inside = x.gt(0.0).choose(-(x * x.log()), x * 0.0);
    let below = x.lt(0.0).choose(f64::NEG_INFINITY, inside);
    x.is_nan().choose(x, below)
}
