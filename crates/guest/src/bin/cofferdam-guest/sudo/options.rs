//! What is asked for on `sudo`'s command line. Options that people and scripts use are understood as they expect; any
//! other is refused, for to pass over one would be to run something else than was meant.

use alloc::vec::Vec;

/// One command, and how it is to be run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    /// A name, or `#` and a number.
    pub(super) user: &'a [u8],
    pub(super) shell: Option<Shell>,
    pub(super) keep: Keep<'a>,
    /// The home of who it is to be, also where the environment is kept.
    pub(super) set_home: bool,
    /// `NAME=value` before the command.
    pub(super) env: Vec<&'a [u8]>,
    pub(super) command: Vec<&'a [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    /// That of who it is to be, as if they had logged in.
    Login,
    /// The caller's.
    Plain,
}

/// What of the caller's environment is kept, beyond a few harmless names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keep<'a> {
    Nothing,
    All,
    Named(Vec<&'a [u8]>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    Run(Wish<'a>),
    /// Whether one may.
    Validate,
    List,
    Version,
    Help,
}

/// What is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong<'a> {
    Unknown(&'a [u8]),
    NeedsValue(&'a [u8]),
    NoCommand,
}

fn is_assignment(text: &[u8]) -> bool {
    let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.contains(&b'=') && !name.is_empty() && name.iter().all(letter) && !name.starts_with(b"0")
}

/// The arguments, without the name of the program.
pub(super) fn read<'a>(args: &[&'a [u8]]) -> Result<Asked<'a>, Wrong<'a>> {
    let mut wish = Wish {
        user: b"root",
        shell: None,
        keep: Keep::Nothing,
        set_home: false,
        env: Vec::new(),
        command: Vec::new(),
    };
    let mut other = None;
    let mut forget = false;
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        if arg == b"--" {
            break;
        }
        if let Some(long) = arg.strip_prefix(b"--") {
            let mut parts = long.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            match (name, value) {
                (b"user", _) => wish.user = value.or_else(|| args.next()).ok_or(Wrong::NeedsValue(arg))?,
                (b"prompt", _) => drop(value.or_else(|| args.next()).ok_or(Wrong::NeedsValue(arg))?),
                (b"preserve-env", None) => wish.keep = Keep::All,
                (b"preserve-env", Some(names)) => {
                    wish.keep = Keep::Named(names.split(|byte| *byte == b',').collect());
                }
                (_, Some(_)) => return Err(Wrong::Unknown(arg)),
                (name, None) => {
                    let short = LONG.iter().find(|(long, _)| *long == name).ok_or(Wrong::Unknown(arg))?.1;
                    flag(short, arg, &mut wish, &mut other, &mut forget)?;
                }
            }
        } else if let Some(shorts) = arg.strip_prefix(b"-").filter(|shorts| !shorts.is_empty()) {
            for (at, short) in shorts.iter().enumerate() {
                if !matches!(short, b'u' | b'p') {
                    flag(*short, arg, &mut wish, &mut other, &mut forget)?;
                    continue;
                }
                let rest = shorts.get(at + 1..).filter(|rest| !rest.is_empty());
                let value = rest.or_else(|| args.next()).ok_or(Wrong::NeedsValue(arg))?;
                if *short == b'u' {
                    wish.user = value;
                }
                break;
            }
        } else if is_assignment(arg) {
            wish.env.push(arg);
        } else {
            wish.command.push(arg);
            break;
        }
    }
    wish.command.extend(args);
    match other {
        Some(other) => Ok(other),
        // What was remembered of a password is nothing here.
        None if forget && wish.command.is_empty() && wish.shell.is_none() => Ok(Asked::Validate),
        None if wish.command.is_empty() && wish.shell.is_none() => Err(Wrong::NoCommand),
        None => Ok(Asked::Run(wish)),
    }
}

const LONG: [(&[u8], u8); 12] = [
    (b"non-interactive", b'n'),
    (b"stdin", b'S'),
    (b"askpass", b'A'),
    (b"login", b'i'),
    (b"shell", b's'),
    (b"set-home", b'H'),
    (b"validate", b'v'),
    (b"list", b'l'),
    (b"version", b'V'),
    (b"help", b'h'),
    (b"reset-timestamp", b'k'),
    (b"remove-timestamp", b'K'),
];

fn flag<'a>(
    short: u8,
    arg: &'a [u8],
    wish: &mut Wish<'a>,
    other: &mut Option<Asked<'a>>,
    forget: &mut bool,
) -> Result<(), Wrong<'a>> {
    match short {
        // Nobody is ever asked for a password.
        b'n' | b'S' | b'A' => {}
        b'k' | b'K' => *forget = true,
        b'E' => wish.keep = Keep::All,
        b'H' => wish.set_home = true,
        b'i' => wish.shell = Some(Shell::Login),
        b's' => wish.shell = Some(Shell::Plain),
        b'v' => *other = Some(Asked::Validate),
        b'l' => *other = Some(Asked::List),
        b'V' => *other = Some(Asked::Version),
        b'h' => *other = Some(Asked::Help),
        _ => return Err(Wrong::Unknown(arg)),
    }
    Ok(())
}

/// The words as one line for a shell, each as it is: only `$` stays what it is to a shell, as people know it of sudo.
pub(super) fn quoted(words: &[&[u8]]) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        if word.is_empty() {
            line.extend_from_slice(b"''");
        }
        for byte in *word {
            if !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-' | b'$') && byte.is_ascii() {
                line.push(b'\\');
            }
            line.push(*byte);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split_whitespace().map(str::as_bytes).collect()
    }

    fn wish(text: &'static str) -> Wish<'static> {
        match read(&words(text)) {
            Ok(Asked::Run(wish)) => wish,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        for text in ["ls -l /root", "-n ls -l /root", "-nE -u root -- ls -l /root", "-nHSA ls -l /root"] {
            assert_eq!(wish(text).command, words("ls -l /root"), "{text}");
        }
        for text in ["-u user id", "-uuser id", "-nu user id", "--user=user id", "--user user id"] {
            assert_eq!((wish(text).user, wish(text).command), (&b"user"[..], words("id")), "{text}");
        }
        assert_eq!(wish("A=1 B_2=x=y env C=3").env, words("A=1 B_2=x=y"));
        assert_eq!(wish("A=1 env C=3").command, words("env C=3"));
        assert_eq!(wish("-- A=1 env").command, words("A=1 env"), "after `--` all is the command's");
        assert_eq!(wish("--preserve-env=A,B env").keep, Keep::Named(words("A B")));
        assert_eq!(wish("-i").shell, Some(Shell::Login));
        assert_eq!(
            (wish("-s echo x").shell, wish("-s echo x").command),
            (Some(Shell::Plain), words("echo x"))
        );
        assert_eq!(read(&words("-v")), Ok(Asked::Validate));
        assert_eq!(read(&words("-k")), Ok(Asked::Validate));
        assert_eq!(read(&words("-nl")), Ok(Asked::List));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in
            ["-g staff id", "-b sleep 1", "-nZ id", "--chroot=/x id", "--nonsense", "-e /etc/x", "-C 3 id"]
        {
            assert!(matches!(read(&words(text)), Err(Wrong::Unknown(_))), "{text}");
        }
        for text in ["-u", "--user", "-p"] {
            assert!(matches!(read(&words(text)), Err(Wrong::NeedsValue(_))), "{text}");
        }
        for text in ["", "-n", "-u root", "A=1"] {
            assert_eq!(read(&words(text)), Err(Wrong::NoCommand), "{text}");
        }
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        assert_eq!(quoted(&[b"echo", b"a b;c", b"", b"$HOME"]), b"echo a\\ b\\;c '' $HOME");
    }
}
