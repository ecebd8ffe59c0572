//! `amk models`.

use super::options::{print, table_of};
use amk_models::model::{FAMILIES, all_instances};
use anyhow::Result;
use std::process::ExitCode;

/// List the models and their instances.
#[derive(clap::Args)]
pub(crate) struct Models {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Models {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.json {
            let instances: Vec<_> = all_instances()
                .map(|(family, instance)| {
                    let (model, dims) = (family.name, &instance.dims);
                    serde_json::json!({"model": model, "instance": instance.name, "dims": dims})
                })
                .collect();
            print(&format!("{}\n", serde_json::to_string_pretty(&instances)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        for family in FAMILIES {
            print(&format!("{}: {}\n", family.name, family.about))?;
            let graph = family.kernel.graph()?;
            let mut table = table_of(std::iter::once("instance").chain(graph.dims.iter().map(String::as_str)));
            for instance in &graph.instances {
                let dims = graph.dims.iter().map(|dim| instance.dims.get(dim).map_or_else(String::new, u32::to_string));
                table.add_row(std::iter::once(instance.name.clone()).chain(dims));
            }
            print(&format!("{table}\n\n"))?;
        }
        print("Any checkpoint of these architectures runs: `amk generate --model FOLDER_OR_GGUF \"..\"`.\n")?;
        Ok(ExitCode::SUCCESS)
    }
}
