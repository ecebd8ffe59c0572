//! The role of a message, as in OpenAI's API.

use super::ChatTemplate;

/// The roles of OpenAI's API.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A role that neither OpenAI's API nor the template has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no role `{role}`; expected one of {}", ROLES.join(", "))]
pub struct RoleError {
    role: String,
}

impl ChatTemplate {
    /// Returns the role in messages for this template that corresponds to one that a client names:
    /// `developer` is OpenAI's newer name for `system`.
    ///
    /// # Errors
    /// [`RoleError`].
    pub fn role(&self, role: String) -> Result<String, RoleError> {
        let own = || ['\'', '"'].iter().any(|quote| self.source.contains(&format!("{quote}{role}{quote}")));
        match role.as_str() {
            "developer" => Ok("system".to_owned()),
            name if ROLES.contains(&name) || own() => Ok(role),
            _ => Err(RoleError { role }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::TokenTexts;

    #[test]
    fn a_role_is_one_of_the_api_or_of_the_template() {
        let template = ChatTemplate::new("{{ m['role'] == 'ipython' }}".to_owned(), TokenTexts::default());
        let of = |role: &str| template.role(role.to_owned());
        assert_eq!([of("tool"), of("ipython")], [Ok("tool".to_owned()), Ok("ipython".to_owned())]);
        assert_eq!(of("developer").as_deref(), Ok("system"));
        let error = of("usr").unwrap_err().to_string();
        assert_eq!(error, "no role `usr`; expected one of system, developer, user, assistant, tool");
    }
}
