//! The verifier against the oracle on random programs: [`draw()`], [`Tally`], and a search guided
//! by its own findings, [`guided`], which keeps near misses, [`near`].

mod draw;
mod features;
pub mod guided;
pub mod near;
mod tally;

pub use draw::{Family, Label, draw};
pub use features::{cause, features};
pub use tally::{Count, Difference, Tally};

use crate::oracle::{self, Horizon, Verdict};
use amk_ir::{Program, text, verify};

/// A verifier, as the codes it reports.
pub type Verifier = fn(&Program) -> Vec<String>;

/// The verifier's codes; none where it accepts, and the checker accepts its certificate. Programs
/// with tables or rows have none.
pub fn codes(program: &Program) -> Vec<String> {
    let verified = match verify::verify(program.clone()) {
        Ok(verified) => verified,
        Err(rejected) => return rejected.violations.iter().map(|violation| violation.code().to_string()).collect(),
    };
    let certificate = match verify::certify(&verified) {
        Ok(certificate) => certificate,
        Err(verify::NoCertificate::Tables | verify::NoCertificate::Rows) => return Vec::new(),
        Err(other) => return vec![format!("no certificate: {other}")],
    };
    let refused = amk_checker::check(program, &certificate).err();
    refused.map(|refusal| format!("certificate refused: {refusal}")).into_iter().collect()
}

/// The oracle's verdict.
pub fn opinion(program: &Program) -> Verdict {
    oracle::judge_within(&text::print(program), Horizon { steps: 16 })
}
