//! The files of a repository that a model needs.

use super::{HubError, HubModel};
use indicatif::HumanBytes;

/// A file of a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubFileInfo {
    /// Its path in the repository.
    pub path: String,
    /// Size in bytes, if the hub states it.
    pub size: Option<u64>,
    /// The name of its content in the cache: its SHA-256 if it is large, else its git id.
    pub blob: String,
}

/// The files beside the weights; not every model has all of them.
const BESIDE: [&str; 7] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "model.safetensors.index.json",
];

/// Selects the files to download: a GGUF file, or the files that a folder of safetensors needs.
pub(super) fn choose(model: &HubModel, files: &[HubFileInfo]) -> Result<Vec<HubFileInfo>, HubError> {
    let of = |chosen: &dyn Fn(&str) -> bool| -> Vec<HubFileInfo> {
        files.iter().filter(|file| chosen(&file.path)).cloned().collect()
    };
    if let Some(wanted) = &model.file {
        let found = of(&|path| path == wanted);
        return match found.is_empty() {
            true => Err(HubError::Choose(format!("{} has no file {wanted}{}", model.repository, list(model, files)))),
            false => Ok(found),
        };
    }
    let is_weight = |path: &str| path.starts_with("model") && path.ends_with(".safetensors");
    if files.iter().any(|file| is_weight(&file.path)) && files.iter().any(|file| file.path == BESIDE[0]) {
        return Ok(of(&|path| is_weight(path) || BESIDE.contains(&path)));
    }
    let gguf = of(&is_gguf);
    match gguf.len() {
        0 => Err(HubError::Choose(format!("{model} has neither safetensors with a config.json nor a GGUF file"))),
        1 => Ok(gguf),
        _ => Err(HubError::Choose(format!("{model} has several GGUF files{}", list(model, files)))),
    }
}

fn is_gguf(path: &str) -> bool {
    path.ends_with(".gguf")
}

/// The names of the GGUF files, as they are asked for.
fn list(model: &HubModel, files: &[HubFileInfo]) -> String {
    let line = |file: &HubFileInfo| {
        let size = file.size.map_or_else(String::new, |size| format!(" ({})", HumanBytes(size)));
        format!("\n  {}:{}{size}", model.repository, file.path)
    };
    let lines: String = files.iter().filter(|file| is_gguf(&file.path)).map(line).collect();
    if lines.is_empty() { lines } else { format!("; choose one:{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(model: &str, paths: &[&str]) -> Result<Vec<String>, String> {
        let file = |path: &&str| HubFileInfo { path: (*path).to_owned(), size: Some(1 << 20), blob: String::new() };
        let files: Vec<HubFileInfo> = paths.iter().map(file).collect();
        let chosen = choose(&model.parse().unwrap(), &files).map_err(|error| error.to_string());
        Ok(chosen?.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn a_folder_of_safetensors_has_what_it_needs() {
        let paths = ["README.md", "config.json", "model-1.safetensors", "onnx/model.onnx", "tokenizer.json", "m.gguf"];
        assert_eq!(chosen("a/b", &paths).unwrap(), ["config.json", "model-1.safetensors", "tokenizer.json"]);
        let templates = ["tool_use", "rag"].map(|name| format!("additional_chat_templates/{name}.jinja"));
        let paths = [&templates[0], "chat_template.jinja", "config.json", "model.safetensors", &templates[1]];
        assert_eq!(chosen("a/b", &paths).unwrap(), &paths[..4]);
        assert!(chosen("a/b", &["config.json", "pytorch_model.bin"]).unwrap_err().contains("neither safetensors"));
    }

    #[test]
    fn one_of_several_gguf_files_is_asked_for_by_name() {
        assert_eq!(chosen("a/b", &["m.gguf", "config.json"]).unwrap(), ["m.gguf"]);
        let both = ["m-q4.gguf", "m-q8.gguf"];
        assert_eq!(chosen("a/b:m-q8.gguf", &both).unwrap(), ["m-q8.gguf"]);
        let list = "; choose one:\n  a/b:m-q4.gguf (1.00 MiB)\n  a/b:m-q8.gguf (1.00 MiB)";
        assert_eq!(chosen("a/b", &both).unwrap_err(), format!("a/b has several GGUF files{list}"));
        assert_eq!(chosen("a/b:m.gguf", &both).unwrap_err(), format!("a/b has no file m.gguf{list}"));
    }
}
