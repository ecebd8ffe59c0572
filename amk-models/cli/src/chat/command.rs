//! Commands of a chat.

use std::path::PathBuf;
use std::str::FromStr;

/// The text of `/help`.
pub(super) const HELP: &str = "\
/system TEXT   the system message; without a text, none
/retry         another answer to the last message
/clear         begin again, with the system message
/save FILE     write the conversation as JSON
/load FILE     go on with a conversation
/stats         tokens and times of the last answer
/help          this list
/exit          end, as Ctrl-D
A line that ends with \\ goes on in the next one, as after Alt-Enter. Ctrl-C stops an answer.
";

/// A line that begins with `/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    System(Option<String>),
    Retry,
    Clear,
    Save(PathBuf),
    Load(PathBuf),
    Stats,
    Help,
    Exit,
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let line = line.trim_end();
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let file = || match argument {
            "" => Err(format!("{name} needs a file")),
            file => Ok(PathBuf::from(file)),
        };
        let command = match name {
            "/system" => return Ok(Self::System(Some(argument.to_owned()).filter(|text| !text.is_empty()))),
            "/save" => return file().map(Self::Save),
            "/load" => return file().map(Self::Load),
            "/retry" => Self::Retry,
            "/clear" => Self::Clear,
            "/stats" => Self::Stats,
            "/help" => Self::Help,
            "/exit" => Self::Exit,
            _ => return Err(format!("there is no command {name}; /help lists them")),
        };
        if argument.is_empty() { Ok(command) } else { Err(format!("{name} stands alone")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_what_it_needs() {
        let of = |line: &str| line.parse::<Command>();
        assert_eq!(of("/system Be brief.\nAlways. "), Ok(Command::System(Some("Be brief.\nAlways.".to_owned()))));
        assert_eq!(of("/system"), Ok(Command::System(None)));
        assert_eq!(of("/save  a b.json"), Ok(Command::Save(PathBuf::from("a b.json"))));
        assert_eq!(of("/load"), Err("/load needs a file".to_owned()));
        assert_eq!(of("/retry now"), Err("/retry stands alone".to_owned()));
        assert_eq!(of("/quiet"), Err("there is no command /quiet; /help lists them".to_owned()));
        for line in HELP.lines().filter(|line| line.starts_with('/')) {
            let name = line.split(' ').next().unwrap();
            assert!(of(name).is_ok() || of(&format!("{name} x")).is_ok(), "{name}");
        }
    }
}
