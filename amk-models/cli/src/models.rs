//! `amk models`.

use super::load::UNQUANTISED;
use super::options::{AllowArg, print, table_of};
use amk_models::config::neutral_fields;
use amk_models::import::{Import, Known};
use amk_models::model::{FAMILIES, Family, Model, Output, all_instances};
use amk_models::models::imports;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// List the models, what of a config is modelled, and their instances.
#[derive(clap::Args)]
#[command(mut_arg("allow_unknown", |arg| arg.requires("check")))]
pub(crate) struct Models {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Say whether a checkpoint would run, and why not; its weights are not read.
    #[arg(long, value_name = "FILE_OR_FOLDER", conflicts_with_all = ["json", "refused"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    allow: AllowArg,
    /// List the fields of a config that change what a model computes and are not modelled.
    #[arg(long, conflicts_with = "json")]
    refused: bool,
}

impl Models {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(path) = &self.check {
            let checkpoint = self.allow.open(path)?;
            let text = checkpoint.tokenizer().is_ok();
            let quantised = checkpoint.config.quantises_activations();
            let (family, only) = match Model::check(&checkpoint.config, checkpoint.tensors.clone(), Output::Logits) {
                Ok(family) => (family, ""),
                Err(error) => match Model::check(&checkpoint.config, checkpoint.tensors, Output::States) {
                    Ok(family) => (family, ", but only for `amk embed`: it has no output head"),
                    Err(_) => return Err(error).with_context(|| path.display().to_string()),
                },
            };
            let tokens = if text { "" } else { ", but has no tokenizer: it takes token ids only" };
            print(&format!("{} runs as `{}`{only}{tokens}\n", path.display(), family.name))?;
            if quantised {
                print(&format!("{UNQUANTISED}\n"))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
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
        if self.refused {
            let mut table = table_of(["field", "refused unless it is off, because"]);
            for (field, reason) in neutral_fields() {
                table.add_row([field, reason]);
            }
            print(&format!("{table}\nA family's own fields are not refused: `amk models`.\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        for family in FAMILIES {
            print(&described(&family))?;
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

/// The family, its kinds of checkpoints, and what is modelled of their configs besides sizes.
fn described(family: &Family) -> String {
    let mut text = format!("{}: {}\n", family.name, family.about);
    let of = |import: &&Import| import.family == family.name || import.windowed == Some(family.name);
    for import in imports().filter(of) {
        let gguf = import.gguf.map_or_else(|| "no GGUF".to_owned(), |gguf| format!("GGUF `{}`", gguf.architecture));
        text.push_str(&format!("  `{}`, {gguf}", import.model_type));
        let own = own_fields(import).join(", ");
        text.push_str(if own.is_empty() { "\n" } else { ": " });
        if !own.is_empty() {
            text.push_str(&format!("{own}\n"));
        }
    }
    text
}

/// The fields that a kind of checkpoint has of its own.
fn own_fields(import: &Import) -> Vec<String> {
    let numbers = import.numbers.iter().map(|number| number.field.to_owned());
    let flags = import.flags.iter().map(|flag| flag.field.to_owned());
    let layers = import.layers.iter().map(|layers| layers.field.to_owned());
    let part = import.rotation.part.map(|_| "partial_rotary_factor".to_owned());
    let fixed = import.fixed.iter().map(|fixed| match fixed.value {
        Known::Truth(value) => format!("{} = {value}", fixed.field),
        Known::Text(value) => format!("{} = {value:?}", fixed.field),
        Known::AllOf(values) => format!("{} of {}", fixed.field, values.join(", ")),
    });
    let sizes = import.sizes.iter().map(|size| size.field.to_owned());
    sizes.chain(numbers).chain(flags).chain(layers).chain(part).chain(fixed).collect()
}
