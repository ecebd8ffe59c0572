//! Names of models.

use std::fmt;
use std::str::FromStr;

/// A model of the hub: `owner/name[:file][@revision]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubModel {
    /// `owner/name`.
    pub repository: String,
    /// The file to run, if the repository has several.
    pub file: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: String,
}

/// A text is not the name of a model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` does not name a model of the hub: `owner/name[:file][@revision]`")]
pub struct NameError(String);

/// The default revision.
const MAIN: &str = "main";

impl FromStr for HubModel {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError(text.to_owned());
        let (rest, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (repository, file) = match rest.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (rest, None),
        };
        let (owner, name) = repository.split_once('/').ok_or_else(wrong)?;
        // Parts of a name become parts of paths.
        let paths = [file.unwrap_or("file"), revision];
        if !is_part(owner) || !is_part(name) || !paths.iter().all(|path| path.split('/').all(is_part)) {
            return Err(wrong());
        }
        Ok(Self { repository: repository.to_owned(), file: file.map(str::to_owned), revision: revision.to_owned() })
    }
}

/// Whether a text is valid as part of a name or of a path in a repository.
pub(super) fn is_part(text: &str) -> bool {
    let legal = |char: char| char.is_ascii_alphanumeric() || "-_.+".contains(char);
    text.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '_') && text.chars().all(legal)
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        if let Some(file) = &self.file {
            write!(f, ":{file}")?;
        }
        if self.revision == MAIN { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_file_and_a_revision_or_none() {
        let of = |text: &str| {
            let model: HubModel = text.parse().unwrap();
            assert_eq!(model.to_string(), text);
            (model.repository, model.file, model.revision)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("Qwen/Qwen2.5-0.5B"), ("Qwen/Qwen2.5-0.5B".into(), None, "main".into()));
        assert_eq!(of("a/b:q/m.gguf@v1.0"), ("a/b".into(), some("q/m.gguf"), "v1.0".into()));
        assert_eq!(of("a/b@refs/pr/1").2, "refs/pr/1");
    }

    #[test]
    fn what_is_a_path_is_no_name() {
        for text in ["model", "./a/b", "/a/b", "a/b/c", "../a", "a/..", "a/b:../c", "a/b@../c", "a/b:", "a b/c", "C:/a"]
        {
            assert!(text.parse::<HubModel>().is_err(), "{text}");
        }
    }
}
