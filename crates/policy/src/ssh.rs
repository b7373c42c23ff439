//! What is asked of a host over SSH, read as the shell at the other end would read it, and written anew in one way. What
//! could mean more than its words (variables, globs, lists of commands, redirections) is not read at all.

use std::fmt;

/// Longer is no path and no command that anyone declares.
pub const MAX_COMMAND: usize = 4 << 10;

/// Why a command is not carried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the command is empty")]
    Empty,
    #[error("the command has more than {MAX_COMMAND} bytes")]
    TooLong,
    #[error("the command is not UTF-8 text, or has control characters in it")]
    NotText,
    #[error("`{0}` means something to a shell: write it in single quotes, or leave it out")]
    Shell(char),
    #[error("a quote in the command is not closed")]
    Quote,
    #[error("`{0}` takes one repository and nothing else: write it as git does, `{0} 'PATH'`")]
    Shape(&'static str),
    #[error(
        "`{0}` is no path of a repository with one reading: leave out `.`, `..`, `//`, and a `-` or `~/` at the start"
    )]
    Repo(String),
}

/// What git asks for; each is a program at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitService {
    /// `git fetch` and `git clone`.
    Fetch,
    /// `git push`.
    Push,
    /// `git archive --remote`.
    Archive,
}

impl GitService {
    const ALL: [Self; 3] = [Self::Fetch, Self::Push, Self::Archive];

    /// The program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Fetch => "git-upload-pack",
            Self::Push => "git-receive-pack",
            Self::Archive => "git-upload-archive",
        }
    }

    /// Whether it leaves the repository as it was.
    pub fn only_reads(self) -> bool {
        self != Self::Push
    }
}

/// What kind of thing is asked for, as rules name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshKind {
    Git(GitService),
    Exec,
}

impl SshKind {
    pub(crate) const NAMES: &'static [&'static str] = &["fetch", "push", "archive", "exec", "*"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Git(GitService::Fetch) => "fetch",
            Self::Git(GitService::Push) => "push",
            Self::Git(GitService::Archive) => "archive",
            Self::Exec => "exec",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = GitService::ALL.map(Self::Git).into_iter().chain([Self::Exec]);
        all.into_iter().find(|kind| kind.name() == name)
    }
}

/// A command, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshCommand {
    Git {
        service: GitService,
        /// As it was written: with a `/` at the start it is absolute.
        repo: String,
    },
    /// Anything else; never empty.
    Exec { words: Vec<String> },
}

impl SshCommand {
    pub fn read(bytes: &[u8]) -> Result<Self, CommandError> {
        if bytes.len() > MAX_COMMAND {
            return Err(CommandError::TooLong);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| CommandError::NotText)?;
        let words = words(text)?;
        let first = words.first().ok_or(CommandError::Empty)?;
        // `git upload-pack` is the same program.
        let (name, rest) = match words.get(1) {
            Some(second) if first == "git" => (format!("git-{second}"), words.get(2..)),
            _ => (first.clone(), words.get(1..)),
        };
        let Some(service) = GitService::ALL.into_iter().find(|service| service.program() == name) else {
            return Ok(Self::Exec { words });
        };
        match rest.unwrap_or_default() {
            [repo] if is_repo(repo) => Ok(Self::Git { service, repo: repo.clone() }),
            [repo] => Err(CommandError::Repo(repo.chars().take(80).collect())),
            _ => Err(CommandError::Shape(service.program())),
        }
    }

    pub fn kind(&self) -> SshKind {
        match self {
            Self::Git { service, .. } => SshKind::Git(*service),
            Self::Exec { .. } => SshKind::Exec,
        }
    }

    /// Its words, as the other end will have them.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let (first, rest) = match self {
            Self::Git { repo, .. } => (Some(repo.as_str()), [].as_slice()),
            Self::Exec { words } => (None, words.as_slice()),
        };
        first.into_iter().chain(rest.iter().map(String::as_str))
    }

    /// The repository, if it is about one.
    pub fn repo(&self) -> Option<&str> {
        match self {
            Self::Git { repo, .. } => Some(repo),
            Self::Exec { .. } => None,
        }
    }
}

/// The one way to write it: it is read as itself by a shell, and by those who only look like one.
impl fmt::Display for SshCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Git { service, repo } => {
                write!(f, "{} ", service.program())?;
                quote(f, repo)
            }
            Self::Exec { words } => {
                for (at, word) in words.iter().enumerate() {
                    if at > 0 {
                        f.write_str(" ")?;
                    }
                    if !word.is_empty() && word.chars().all(is_plain) {
                        f.write_str(word)?;
                    } else {
                        quote(f, word)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// As git quotes: all that is special within single quotes is what ends them, and what old shells do with `!`.
fn quote(f: &mut fmt::Formatter<'_>, word: &str) -> fmt::Result {
    f.write_str("'")?;
    for c in word.chars() {
        match c {
            '\'' | '!' => write!(f, "'\\{c}'")?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("'")
}

/// What a shell takes for itself, wherever in a word it stands.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '%' | '+' | ',')
}

/// Words as a shell makes them of plain text, single quotes and escapes of single characters.
fn words(text: &str) -> Result<Vec<String>, CommandError> {
    let (mut words, mut word, mut in_word) = (Vec::new(), String::new(), false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' if in_word => {
                words.push(std::mem::take(&mut word));
                in_word = false;
            }
            ' ' => {}
            '\'' => {
                in_word = true;
                loop {
                    match chars.next().ok_or(CommandError::Quote)? {
                        '\'' => break,
                        c if c.is_control() => return Err(CommandError::NotText),
                        c => word.push(c),
                    }
                }
            }
            '\\' => match chars.next().ok_or(CommandError::Quote)? {
                c if c.is_control() => return Err(CommandError::NotText),
                c => {
                    in_word = true;
                    word.push(c);
                }
            },
            c if c.is_control() => return Err(CommandError::NotText),
            // At the start of a word they are not what they look like, and one of them sets a variable.
            '=' if in_word && !words.is_empty() => word.push(c),
            '~' if in_word => word.push(c),
            c if is_plain(c) || c.is_alphanumeric() => {
                in_word = true;
                word.push(c);
            }
            c => return Err(CommandError::Shell(c)),
        }
    }
    if in_word {
        words.push(word);
    }
    Ok(words)
}

/// Whether a path has one reading, at whatever server: none that leads elsewhere, and none that is an option.
fn is_repo(path: &str) -> bool {
    let bare = path.strip_prefix('/').unwrap_or(path);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    // `~` alone is the home at which a path begins anyway.
    let fits = |segment: &str| !matches!(segment, "" | "." | ".." | "~");
    !bare.is_empty() && !path.starts_with('-') && bare.split('/').all(fits) && !path.contains('\\')
}

/// As [`bare`], and however often and in whatever letters the endings stand there: for what must not be missed.
pub(crate) fn barest(path: &str) -> &str {
    let mut path = path;
    loop {
        let short = bare(path);
        let ending = short.len().checked_sub(GIT.len()).and_then(|at| short.split_at_checked(at));
        let short = match ending {
            Some((rest, ending)) if ending.eq_ignore_ascii_case(GIT) => bare(rest),
            _ => short,
        };
        if short.is_empty() || short == path {
            return path;
        }
        path = short;
    }
}

const GIT: &str = ".git";

/// Without what servers add or leave out by themselves: a slash or `.git` at the end.
pub(crate) fn bare(path: &str) -> &str {
    let path = path.strip_suffix('/').unwrap_or(path);
    let short = path.strip_suffix("/.git").or_else(|| path.strip_suffix(".git")).unwrap_or(path);
    // A repository that is called `.git` and nothing else keeps its name.
    if short.is_empty() || short.ends_with('/') { path } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn check(text: &str, expected: Result<&str, &str>) {
        let found = SshCommand::read(text.as_bytes());
        match (&found, expected) {
            (Ok(command), Ok(expected)) => assert_eq!(command.to_string(), expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn commands_of_git() {
        check("git-upload-pack 'acme/site.git'", Ok("git-upload-pack 'acme/site.git'"));
        check("git-receive-pack '/srv/git/a b.git'", Ok("git-receive-pack '/srv/git/a b.git'"));
        check("git upload-pack acme/site", Ok("git-upload-pack 'acme/site'"));
        check("git-upload-archive '~alice/notes'", Ok("git-upload-archive '~alice/notes'"));
        check(r"git-upload-pack 'it'\''s'\!''", Ok(r"git-upload-pack 'it'\''s'\!''"));
        check("git-upload-pack 'a' 'b'", Err("one repository"));
        check("git-upload-pack", Err("one repository"));
        check("git-upload-pack --strict 'a'", Err("one repository"));
        for path in
            ["~/a", "~", "../a", "a/../b", "a//b", "./a", "a/.", "/", "''", "-oProxyCommand=x", "a\\\\b"]
        {
            let quoted = if path == "''" { path.to_owned() } else { format!("'{path}'") };
            check(&format!("git-upload-pack {quoted}"), Err("path of a repository"));
        }
    }

    #[test]
    fn other_commands_are_words() {
        check("uptime", Ok("uptime"));
        check("  systemctl   status  nginx ", Ok("systemctl status nginx"));
        check("dd if=/dev/zero of=x", Ok("dd 'if=/dev/zero' 'of=x'"));
        check(r"echo 'a  b' c\ d ''", Ok("echo 'a  b' 'c d' ''"));
        check("/usr/bin/git-upload-pack 'a'", Ok("/usr/bin/git-upload-pack a"));
        check("git status", Ok("git status"));
    }

    #[test]
    fn what_a_shell_would_do_more_with_is_refused() {
        check("", Err("empty"));
        check("   ", Err("empty"));
        check("uptime; id", Err("`;`"));
        check("git-upload-pack 'a'; id", Err("`;`"));
        check("git-upload-pack $HOME", Err("`$`"));
        check("git-upload-pack `id`", Err("``"));
        check("a | b", Err("`|`"));
        check("a > b", Err("`>`"));
        check("a & b", Err("`&`"));
        check("a *", Err("`*`"));
        check("a \"b\"", Err("`\"`"));
        check("cat ~root/x", Err("`~`"));
        check("LD_PRELOAD=/tmp/x id", Err("`=`"));
        check("{a,b}", Err("`{`"));
        check("a #b", Err("`#`"));
        check("a 'b", Err("not closed"));
        check("a \\", Err("not closed"));
        check("a\nb", Err("control"));
        check("a 'b\nc'", Err("control"));
        check(&"x".repeat(MAX_COMMAND + 1), Err("more than"));
        assert_eq!(SshCommand::read(b"a \xff"), Err(CommandError::NotText));
    }

    #[test]
    fn endings_that_servers_add_by_themselves() {
        for (path, expected) in [
            ("a/b", "a/b"),
            ("a/b.git", "a/b"),
            ("a/b/", "a/b"),
            ("a/b/.git", "a/b"),
            ("a/b.git/", "a/b"),
            (".git", ".git"),
            ("a/.git", "a"),
        ] {
            assert_eq!(bare(path), expected, "{path}");
            assert_eq!(barest(path), expected, "{path}");
        }
        for path in ["a/b.GIT", "a/b.git/.git", "a/b.git.git/", "a/b/.Git/.gIT", "a/b.GIT/"] {
            assert_eq!(barest(path), "a/b", "{path}");
        }
        for path in ["", "/", ".git", ".GIT", "é.git", "ééé"] {
            barest(path);
        }
    }

    /// What we write is for a shell exactly the words that we read: a real one says so.
    #[test]
    fn a_shell_reads_the_same_words() {
        let texts = [
            "git-upload-pack 'it'\\''s a'\\!'b c/d.git'",
            r"echo 'a  b' c\ d '' 'x;y' '$HOME' '`id`' '*' ü '\' '%s' a=b '~x' b~",
            r"run \$x \* \; \'quoted\' \\",
        ];
        for text in texts {
            let command = SshCommand::read(text.as_bytes()).unwrap();
            let expected: Vec<String> = match &command {
                SshCommand::Git { service, repo } => vec![service.program().to_owned(), repo.clone()],
                SshCommand::Exec { words } => words.clone(),
            };
            assert_eq!(shell(&command.to_string()), expected, "{command}");
            assert_eq!(shell(text), expected, "{text}");
        }
    }

    fn shell(text: &str) -> Vec<String> {
        let script = format!("printf '%s\\0' {text}");
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(done.status.success(), "{text}: {}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_so_that_it_is_read_again(
            text in "(git-upload-pack |git receive-pack |run )?[a-z'\\\\ ./~!$=*;üé-]{0,40}"
        ) {
            if let Ok(command) = SshCommand::read(text.as_bytes()) {
                prop_assert_eq!(SshCommand::read(command.to_string().as_bytes()), Ok(command));
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = SshCommand::read(&bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn a_shell_agrees_on_words_by_chance(words in proptest::collection::vec("[ -~ü]{0,12}", 1..5)) {
            let words = [vec!["run".to_owned()], words].concat();
            let command = SshCommand::Exec { words: words.clone() };
            prop_assert_eq!(shell(&command.to_string()), words.clone());
            prop_assert_eq!(SshCommand::read(command.to_string().as_bytes()), Ok(SshCommand::Exec { words }));
        }
    }
}
