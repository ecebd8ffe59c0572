//! The hub settings in the environment.

use super::HubError;
use std::path::PathBuf;

const ENDPOINT: &str = "https://huggingface.co";

/// The settings of `huggingface_hub`.
#[derive(Clone, Debug, Default)]
pub struct HubSettings {
    endpoint: Option<String>,
    cache: Option<PathBuf>,
    token: Option<String>,
    offline: bool,
}

impl HubSettings {
    /// Those that the environment names.
    pub fn from_env() -> Self {
        Self::of(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// Those that some variables name.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        let home = path("HF_HOME").or_else(|| Some(caches?.join("huggingface")));
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")));
        let read = || std::fs::read_to_string(token_file?).ok();
        let token = variable("HF_TOKEN").or_else(read).map(|token| token.trim().to_owned());
        let yes = |value: String| matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "on");
        Self {
            endpoint: variable("HF_ENDPOINT"),
            cache: path("HF_HUB_CACHE").or_else(|| Some(home.as_ref()?.join("hub"))),
            token: token.filter(|token| !token.is_empty()),
            offline: variable("HF_HUB_OFFLINE").is_some_and(yes),
        }
    }

    /// The address of the hub, or of a mirror.
    pub fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/')
    }

    /// The token of the user.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether downloads are disabled.
    pub fn offline(&self) -> bool {
        self.offline
    }

    pub(super) fn cache(&self) -> Result<PathBuf, HubError> {
        self.cache.clone().ok_or(HubError::NoFolder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_mean_what_they_mean_to_huggingface_hub() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret\n").unwrap();
        let home = folder.path().display().to_string();
        let of = |variables: &[(&str, &str)]| {
            HubSettings::of(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        let own = of(&[("HF_HOME", &home), ("HF_ENDPOINT", "http://mirror/"), ("HF_HUB_OFFLINE", "1")]);
        assert_eq!((own.endpoint(), own.token(), own.offline()), ("http://mirror", Some("secret"), true));
        assert_eq!(own.cache().unwrap(), folder.path().join("hub"));
        let other = of(&[("HOME", "/h"), ("HF_TOKEN", "t"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!((other.endpoint(), other.token(), other.offline()), (ENDPOINT, Some("t"), false));
        assert_eq!(other.cache().unwrap(), PathBuf::from("/h/.cache/huggingface/hub"));
        assert!(matches!(of(&[]).cache(), Err(HubError::NoFolder)));
    }
}
