//! `amk explain CODE`.

use super::options::print;
use amk::ir::explain::{explain, pages};
use anyhow::{Result, bail};
use std::process::ExitCode;

/// Explain a code such as AMK0302.
#[derive(clap::Args)]
pub(crate) struct Explain {
    /// The code; without one, all codes are listed.
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Some(code) = self.code else {
            let pages: String = pages().map(|page| format!("AMK{:04}  {}\n", page.code, page.title)).collect();
            print(&pages)?;
            return Ok(ExitCode::SUCCESS);
        };
        let code = code.to_uppercase();
        let Some(page) = explain(&code) else {
            bail!("there is no code `{code}`; `amk explain` lists all of them");
        };
        print(&page.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}
