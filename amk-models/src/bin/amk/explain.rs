//! `amk explain CODE`.

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
            for page in amk::ir::explain::pages() {
                println!("{}  {}", page.code, page.title);
            }
            return Ok(ExitCode::SUCCESS);
        };
        let code = code.to_uppercase();
        let Some(page) = amk::ir::explain::explain(&code) else {
            bail!("there is no code `{code}`; `amk explain` lists all of them");
        };
        print!("{page}");
        Ok(ExitCode::SUCCESS)
    }
}
