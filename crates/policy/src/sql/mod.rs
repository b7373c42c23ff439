//! SQL as a policy sees it: a text is parsed, never matched, and comes to *acts*: this table is read, into that one is
//! inserted, this function is called. Each act is judged for itself, and a statement is as forbidden as the worst of its
//! acts. What cannot be parsed is refused; what does more than its grammar tells (a function that is not known to be
//! harmless) is an act too.

mod acts;
mod functions;
mod plain;
mod settings;
mod shape;

pub use settings::harmless_setting;
pub use shape::Shape;

use serde::Serialize;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

/// What an act does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SqlKind {
    /// The session itself begins.
    Connect,
    /// Transactions, cursors, harmless settings: of no effect without the others.
    Control,
    /// Asks for a transaction that may write.
    Writable,
    Read,
    Insert,
    Update,
    Delete,
    /// Rows or tables are locked.
    Lock,
    /// A function or procedure that is not known to be harmless.
    Call,
    /// Tables, views, indices and the like are made, changed or taken away.
    Schema,
    /// All else: rights, roles, settings, files and programs of the server.
    Admin,
}

impl SqlKind {
    /// Those that a rule can name.
    pub(crate) const NAMES: &'static [&'static str] =
        &["read", "insert", "update", "delete", "lock", "call", "schema", "admin", "*"];
    pub(crate) const RULED: [Self; 8] = [
        Self::Read,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Lock,
        Self::Call,
        Self::Schema,
        Self::Admin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Control => "control",
            Self::Writable => "writable",
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Lock => "lock",
            Self::Call => "call",
            Self::Schema => "schema",
            Self::Admin => "admin",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::RULED.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its object is a table.
    pub(crate) fn has_table(self) -> bool {
        matches!(self, Self::Read | Self::Insert | Self::Update | Self::Delete | Self::Lock)
    }
}

/// One thing that a statement does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Act {
    pub kind: SqlKind,
    /// `schema.table`, a function's name, or empty where nothing is named.
    pub object: String,
}

impl Act {
    pub fn new(kind: SqlKind, object: impl Into<String>) -> Self {
        Self { kind, object: object.into() }
    }
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.object.as_str() {
            "" => f.write_str(self.kind.name()),
            object => write!(f, "{} {object}", self.kind.name()),
        }
    }
}

/// One statement, read.
#[derive(Debug, Clone)]
pub struct Statement {
    /// At least one.
    pub acts: Vec<Act>,
    pub shape: Shape,
    /// As it was understood, where it is one of several.
    pub text: Option<String>,
    /// The name under which it can be executed later, of `PREPARE`.
    pub prepares: Option<String>,
}

/// A text, read.
#[derive(Debug, Clone)]
pub struct Script {
    pub statements: Vec<Statement>,
    /// The text as it was understood, to be sent in place of one whose words another reader could divide otherwise
    /// (comments, escapes, dollar quotes); none for a plain one.
    pub canonical: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    #[error("it cannot be parsed as SQL of Postgres ({0}): what is not understood is refused")]
    Syntax(String),
    #[error("it has more than {MAX_TEXT} bytes: send less at once, or use COPY")]
    Long,
    #[error("it has more than {MAX_DEPTH} operators: send less at once")]
    Complex,
    #[error(
        "it cannot be written down as it was understood: write it without comments, escapes and dollar quotes"
    )]
    Unstable,
    #[error("`{0}…` is longer than 63 bytes, where Postgres cuts names off: write a shorter one")]
    Name(String),
    #[error("{0} is not SQL of Postgres")]
    Foreign(&'static str),
}

/// Longer ones are made by programs that have COPY.
pub const MAX_TEXT: usize = 256 << 10;
/// Operators and the like stand for how deep a tree can get.
pub const MAX_DEPTH: usize = 4_000;
/// Up to here any thread has stack enough for it.
const SHALLOW: usize = 150;

/// Whether a text may need more stack than a thread usually has: then call [`read`] where there is more.
pub fn is_deep(text: &str) -> bool {
    // Cheap, and never too low: no operator is without one of these.
    text.len() > 4 * SHALLOW
        && text.bytes().filter(|byte| !byte.is_ascii_alphanumeric() && !b" ,()'\n\t".contains(byte)).count()
            > SHALLOW
        || words(text) > SHALLOW
}

fn words(text: &str) -> usize {
    let joins = [
        "and",
        "or",
        "union",
        "except",
        "intersect",
        "not",
        "is",
        "like",
        "ilike",
        "in",
        "between",
        "at",
        "collate",
    ];
    let is_join = |word: &&str| joins.iter().any(|join| word.eq_ignore_ascii_case(join));
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_join).count()
}

pub fn read(text: &str) -> Result<Script, SqlError> {
    if text.len() > MAX_TEXT {
        return Err(SqlError::Long);
    }
    if words(text) + text.bytes().filter(|byte| b"+-*/<>=~!@#%^&|`?:[".contains(byte)).count() > MAX_DEPTH {
        return Err(SqlError::Complex);
    }
    let parsed = parse(text)?;
    let canonical = if plain::is_plain(text) { None } else { Some(canonical(&parsed)?) };
    let several = parsed.len() > 1;
    let one = |parsed| statement(parsed, several);
    let statements = parsed.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(Script { statements, canonical })
}

/// Statement by statement: each must be understood to its last word, or the rest of a text could hide behind one of them.
fn parse(text: &str) -> Result<Vec<sqlparser::ast::Statement>, SqlError> {
    let dialect = PostgreSqlDialect {};
    let syntax = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        SqlError::Syntax(text.trim_start_matches("sql parser error: ").chars().take(200).collect())
    };
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|error| syntax(&error))?;
    let mut statements = Vec::new();
    for tokens in tokens.split(|token| matches!(token.token, Token::SemiColon)) {
        if tokens.iter().all(|token| matches!(token.token, Token::Whitespace(_) | Token::EOF)) {
            continue;
        }
        let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens.to_vec());
        statements.push(parser.parse_statement().map_err(|error| syntax(&error))?);
        let rest = parser.peek_token();
        if rest.token != Token::EOF {
            return Err(SqlError::Syntax(
                format!("`{rest}` is not expected there").chars().take(200).collect(),
            ));
        }
    }
    Ok(statements)
}

/// What is judged is what is sent: only if the written form reads back as the same.
fn canonical(parsed: &[sqlparser::ast::Statement]) -> Result<String, SqlError> {
    let text = parsed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match parse(&text) {
        Ok(again) if again == parsed => Ok(text),
        _ => Err(SqlError::Unstable),
    }
}

fn statement(parsed: sqlparser::ast::Statement, several: bool) -> Result<Statement, SqlError> {
    use sqlparser::ast::Statement as Parsed;
    let acts = acts::acts(&parsed)?;
    let text = several.then(|| parsed.to_string());
    let (prepares, parsed) = match parsed {
        Parsed::Prepare { name, statement, .. } => (Some(acts::folded(&name)?), *statement),
        other => (None, other),
    };
    Ok(Statement { acts, shape: Shape::of(parsed), text, prepares })
}

#[cfg(test)]
mod tests;
