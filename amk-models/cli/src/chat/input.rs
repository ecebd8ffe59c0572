//! What the user says: from an editor on a terminal, else from the lines of standard input.

use amk_models::cache::Cache;
use anyhow::{Context as _, Result};
use rustyline::error::ReadlineError;
use rustyline::{Cmd, DefaultEditor, EventHandler, KeyCode, KeyEvent, Modifiers};
use std::io::{IsTerminal as _, Lines, StdinLock};
use std::path::PathBuf;

const PROMPT: &str = "> ";
/// Before the further lines of a message.
const CONTINUED: &str = ". ";

/// Where messages come from.
pub(super) enum Input {
    /// A terminal, and where its history is kept.
    Editor(Box<DefaultEditor>, Option<PathBuf>),
    Lines(Lines<StdinLock<'static>>),
}

/// A message or command of the user.
pub(super) enum Said {
    Message(String),
    /// The user took back a line.
    Nothing,
    /// The end of the input.
    End,
}

impl Input {
    pub(super) fn new() -> Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Lines(std::io::stdin().lines()));
        }
        let mut editor = DefaultEditor::new()?;
        let newline = KeyEvent(KeyCode::Enter, Modifiers::ALT);
        editor.bind_sequence(newline, EventHandler::Simple(Cmd::Newline));
        let history = Cache::from_env().ok().map(|cache| cache.chat_history());
        if let Some(history) = &history {
            // The first time there is none.
            let _ = editor.load_history(history);
        }
        Ok(Self::Editor(Box::new(editor), history))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Editor(..))
    }

    /// The next message: a line, and the next one too where it ends with a backslash.
    pub(super) fn next(&mut self) -> Result<Said> {
        let mut message = String::new();
        loop {
            let line = match self.line(if message.is_empty() { PROMPT } else { CONTINUED })? {
                Said::Message(line) => line,
                Said::End if !message.is_empty() => String::new(),
                other => return Ok(other),
            };
            match line.strip_suffix('\\') {
                Some(line) => message.extend([line, "\n"]),
                None => {
                    message.push_str(&line);
                    break;
                }
            }
        }
        if let Self::Editor(editor, _) = self {
            editor.add_history_entry(&message)?;
        }
        Ok(if message.trim().is_empty() { Said::Nothing } else { Said::Message(message) })
    }

    fn line(&mut self, prompt: &str) -> Result<Said> {
        match self {
            Self::Lines(lines) => {
                let line = lines.next().transpose().context("cannot read standard input")?;
                Ok(line.map_or(Said::End, Said::Message))
            }
            Self::Editor(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Said::Message(line)),
                Err(ReadlineError::Interrupted) => Ok(Said::Nothing),
                Err(ReadlineError::Eof) => Ok(Said::End),
                Err(error) => Err(error.into()),
            },
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Self::Editor(editor, Some(history)) = self {
            // A chat without its history is a chat.
            let _ = history.parent().map(std::fs::create_dir_all);
            let _ = editor.save_history(history);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_where_the_cache_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("cache/amk/chat_history");
        let mut editor = DefaultEditor::new().unwrap();
        editor.add_history_entry("remember me").unwrap();
        drop(Input::Editor(Box::new(editor), Some(history.clone())));
        assert!(std::fs::read_to_string(history).unwrap().contains("remember me"));
    }
}
