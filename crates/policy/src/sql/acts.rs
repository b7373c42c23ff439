//! What a statement does, found by walking its tree.

use super::{Act, SqlError, SqlKind, functions, harmless_setting};
use core::ops::ControlFlow;
use sqlparser::ast::{
    CopySource, CopyTarget, Expr, FromTable, Function, Ident, Insert, ObjectName, OnConflictAction, OnInsert,
    Query, Reset, Select, Set, SetExpr, Statement, TableFactor, TableObject, TableWithJoins,
    TransactionAccessMode, TransactionMode, Value, Visit, Visitor,
};

pub(super) fn acts(statement: &Statement) -> Result<Vec<Act>, SqlError> {
    let mut walk = Walk::default();
    if let ControlFlow::Break(error) = statement.visit(&mut walk) {
        return Err(error);
    }
    let mut acts: Vec<Act> = Vec::with_capacity(walk.acts.len());
    for act in walk.acts {
        if !acts.contains(&act) {
            acts.push(act);
        }
    }
    if acts.is_empty() {
        acts.push(Act::new(SqlKind::Control, ""));
    }
    Ok(acts)
}

/// A name as Postgres finds it: in lower case unless quoted.
pub(super) fn folded(ident: &Ident) -> Result<String, SqlError> {
    let name =
        if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() };
    // It cuts longer ones off, and finds another table.
    if name.len() > 63 {
        return Err(SqlError::Name(name.chars().take(20).collect()));
    }
    Ok(name)
}

fn parts(name: &ObjectName) -> Result<Vec<String>, SqlError> {
    let part = |part: &sqlparser::ast::ObjectNamePart| match part.as_ident() {
        Some(ident) => folded(ident),
        None => Err(SqlError::Foreign("a name that is computed")),
    };
    name.0.iter().map(part).collect()
}

/// With its schema. One that is not named is the catalogue's for names of its own, and `public` for the others: a
/// session under rules about tables has no other on its path.
fn table(name: &ObjectName) -> Result<String, SqlError> {
    let parts = parts(name)?;
    Ok(match parts.as_slice() {
        [one] => qualified(one),
        several => several.join("."),
    })
}

fn qualified(name: &str) -> String {
    let schema = if name.starts_with("pg_") { "pg_catalog" } else { "public" };
    format!("{schema}.{name}")
}

/// The names that a `WITH` brings, and how many of them can be seen from where the walk is.
struct Frame {
    names: Vec<(String, usize)>,
    recursive: bool,
    visible: usize,
}

#[derive(Default)]
struct Walk {
    acts: Vec<Act>,
    frames: Vec<Frame>,
    /// Names that will be visited as if they were read, and are not.
    written: Vec<String>,
}

type Flow = ControlFlow<SqlError>;

/// Goes on with what is there, or stops with why not.
macro_rules! known {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return ControlFlow::Break(error),
        }
    };
}

impl Walk {
    fn add(&mut self, kind: SqlKind, object: impl Into<String>) {
        self.acts.push(Act::new(kind, object));
    }

    fn call(&mut self, name: &ObjectName) -> Result<(), SqlError> {
        let parts = parts(name)?;
        let own = match parts.as_slice() {
            [name] => Some(name),
            [schema, name] if schema == "pg_catalog" => Some(name),
            _ => None,
        };
        if !own.is_some_and(|name| functions::is_harmless(name)) {
            self.add(SqlKind::Call, parts.join("."));
        }
        Ok(())
    }

    /// What is written to, and read only where its rows come back.
    fn target(&mut self, kinds: &[SqlKind], name: &ObjectName, returns: bool) -> Result<(), SqlError> {
        let table = table(name)?;
        self.written.push(table.clone());
        kinds.iter().for_each(|kind| self.add(*kind, table.clone()));
        if returns {
            self.add(SqlKind::Read, table);
        }
        Ok(())
    }

    fn targets(&mut self, kind: SqlKind, tables: &[TableWithJoins], returns: bool) -> Result<(), SqlError> {
        match tables {
            [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }]
                if joins.is_empty() =>
            {
                self.target(&[kind], name, returns)
            }
            _ => Err(SqlError::Foreign("a target that is not one table")),
        }
    }

    fn insert(&mut self, insert: &Insert) -> Result<(), SqlError> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::Foreign("an INSERT into something else than a table"));
        };
        if insert.overwrite
            || insert.replace_into
            || !insert.multi_table_into_clauses.is_empty()
            || insert.partitioned.is_some()
        {
            return Err(SqlError::Foreign("this form of INSERT"));
        }
        let updates = match &insert.on {
            None => false,
            Some(OnInsert::OnConflict(on)) => matches!(on.action, OnConflictAction::DoUpdate(_)),
            Some(_) => return Err(SqlError::Foreign("ON DUPLICATE KEY")),
        };
        let kinds: &[SqlKind] =
            if updates { &[SqlKind::Insert, SqlKind::Update] } else { &[SqlKind::Insert] };
        self.target(kinds, name, insert.returning.is_some())
    }

    fn copy(&mut self, source: &CopySource, to: bool, target: &CopyTarget) -> Result<(), SqlError> {
        match (target, source) {
            (CopyTarget::File { .. } | CopyTarget::Program { .. }, _) => {
                self.add(SqlKind::Admin, "files and programs of the server");
            }
            (CopyTarget::Stdout, CopySource::Query(_)) if to => self.add(SqlKind::Read, ""),
            (CopyTarget::Stdout, CopySource::Table { table_name, .. }) if to => {
                let table = table(table_name)?;
                self.add(SqlKind::Read, table);
            }
            (CopyTarget::Stdin, CopySource::Table { table_name, .. }) if !to => {
                let table = table(table_name)?;
                self.add(SqlKind::Insert, table);
            }
            _ => return Err(SqlError::Foreign("this form of COPY")),
        }
        Ok(())
    }

    fn modes(&mut self, modes: &[TransactionMode]) {
        let writes = |mode: &TransactionMode| {
            matches!(mode, TransactionMode::AccessMode(TransactionAccessMode::ReadWrite))
        };
        let kind = if modes.iter().any(writes) { SqlKind::Writable } else { SqlKind::Control };
        self.add(kind, "");
    }

    fn set(&mut self, set: &Set) {
        match set {
            Set::SetTransaction { modes, .. } => self.modes(modes),
            Set::SetTimeZone { .. } => self.add(SqlKind::Control, ""),
            Set::SetNames { charset_name, collation_name: None }
                if harmless_setting("names", Some(&charset_name.value)) =>
            {
                self.add(SqlKind::Control, "");
            }
            Set::SingleAssignment { variable, values, .. } => {
                let name = variable.to_string().to_ascii_lowercase();
                let value = match values.as_slice() {
                    [one] => word(one),
                    _ => None,
                };
                self.setting(&name, value.as_deref());
            }
            _ => self.add(SqlKind::Admin, "settings"),
        }
    }

    fn setting(&mut self, name: &str, value: Option<&str>) {
        let writes = matches!(name, "default_transaction_read_only" | "transaction_read_only");
        match harmless_setting(name, value) {
            true => self.add(SqlKind::Control, ""),
            false if writes => self.add(SqlKind::Writable, ""),
            false => self.add(SqlKind::Admin, format!("setting {name}")),
        }
    }

    /// `TABLE name` is the one relation that is not written as a name.
    fn bodies(&mut self, body: &SetExpr) -> Result<(), SqlError> {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                self.bodies(left)?;
                self.bodies(right)
            }
            SetExpr::Table(table) => {
                let plain = |name: &&String| !name.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii());
                let name = table
                    .table_name
                    .as_ref()
                    .filter(plain)
                    .ok_or(SqlError::Foreign("TABLE with such a name"))?;
                let object = match &table.schema_name {
                    Some(schema) if plain(&schema) => format!("{schema}.{name}"),
                    Some(_) => return Err(SqlError::Foreign("TABLE with such a name")),
                    None => qualified(name),
                };
                self.add(SqlKind::Read, object);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), SqlError> {
        match statement {
            Statement::Query(_) => self.add(SqlKind::Read, ""),
            Statement::Insert(insert) => self.insert(insert)?,
            Statement::Update(update) => {
                self.targets(
                    SqlKind::Update,
                    std::slice::from_ref(&update.table),
                    update.returning.is_some(),
                )?;
            }
            Statement::Delete(delete) => {
                let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
                if !delete.tables.is_empty() {
                    return Err(SqlError::Foreign("a DELETE from several tables"));
                }
                self.targets(SqlKind::Delete, tables, delete.returning.is_some())?;
            }
            Statement::Merge(merge) => match &merge.table {
                TableFactor::Table { name, args: None, .. } => {
                    self.target(&[SqlKind::Insert, SqlKind::Update, SqlKind::Delete], name, true)?;
                }
                _ => return Err(SqlError::Foreign("a target that is not one table")),
            },
            Statement::Copy { source, to, target, values, .. } if values.is_empty() => {
                self.copy(source, *to, target)?;
            }
            Statement::Call(function) => {
                let name = parts(&function.name)?.join(".");
                self.add(SqlKind::Call, name);
            }
            Statement::Set(set) => self.set(set),
            Statement::Reset(reset) => match &reset.reset {
                // What the session began with comes back, and that was not the client's to choose.
                Reset::ALL | Reset::ConfigurationParameter(_) => self.add(SqlKind::Control, ""),
                Reset::SessionAuthorization => self.add(SqlKind::Admin, "session authorization"),
            },
            Statement::StartTransaction {
                modes,
                statements,
                exception: None,
                has_end_keyword: false,
                ..
            } if statements.is_empty() => {
                self.modes(modes);
            }
            Statement::Fetch { into: None, .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
            | Statement::Close { .. }
            | Statement::Discard { .. }
            | Statement::Deallocate { .. }
            | Statement::Execute { immediate: false, .. } => self.add(SqlKind::Control, ""),
            Statement::ShowVariable { .. } => self.add(SqlKind::Read, ""),
            // Told by what is in them.
            Statement::Explain { .. } | Statement::Prepare { .. } => {}
            Statement::Declare { stmts } if stmts.iter().all(|one| one.for_query.is_some()) => {
                self.add(SqlKind::Read, "");
            }
            Statement::Lock(_) => self.add(SqlKind::Lock, ""),
            other => {
                let (kind, object) = other_kind(other);
                self.add(kind, object);
            }
        }
        Ok(())
    }
}

/// A value that is one word, as settings have them.
fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Some(text.clone()),
            Value::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// By its first word: what makes things, and what concerns the server.
fn other_kind(statement: &Statement) -> (SqlKind, String) {
    let text = statement.to_string();
    let mut words = text.split_whitespace().map(str::to_ascii_lowercase);
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    let concerns_server =
        ["role", "user", "database", "extension", "server", "policy", "function", "procedure", "trigger"];
    let makes =
        matches!(first.as_str(), "create" | "alter" | "drop" | "truncate" | "comment" | "analyze" | "vacuum");
    match makes && !concerns_server.contains(&second.as_str()) {
        true => (SqlKind::Schema, format!("{first} {second}")),
        false => (SqlKind::Admin, first),
    }
}

impl Visitor for Walk {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &Statement) -> Flow {
        known!(self.statement(statement));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let address = std::ptr::from_ref(query) as usize;
        if let Some(frame) = self.frames.last_mut()
            && let Some(at) = frame.names.iter().position(|(_, of)| *of == address)
        {
            frame.visible = if frame.recursive { frame.names.len() } else { at };
        }
        let mut names = Vec::new();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            names.push((known!(folded(&cte.alias.name)), std::ptr::from_ref(&*cte.query) as usize));
        }
        let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        self.frames.push(Frame { visible: names.len(), names, recursive });
        if !query.locks.is_empty() {
            self.add(SqlKind::Lock, "");
        }
        let foreign = query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty();
        if foreign {
            return ControlFlow::Break(SqlError::Foreign("this form of SELECT"));
        }
        known!(self.bodies(&query.body));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> Flow {
        self.frames.pop();
        let address = std::ptr::from_ref(query) as usize;
        if let Some(frame) = self.frames.last_mut()
            && frame.names.iter().any(|(_, of)| *of == address)
        {
            frame.visible = frame.names.len();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        if select.into.is_some() {
            self.add(SqlKind::Schema, "select into");
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } => {
                known!(self.call(name));
                self.written.push(known!(table(name)));
            }
            TableFactor::Function { name, .. } => known!(self.call(name)),
            TableFactor::Table { .. }
            | TableFactor::Derived { .. }
            | TableFactor::TableFunction { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::NestedJoin { .. } => {}
            _ => return ControlFlow::Break(SqlError::Foreign("this form of FROM")),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        let name = known!(table(relation));
        if let Some(at) = self.written.iter().position(|written| *written == name) {
            self.written.swap_remove(at);
            return ControlFlow::Continue(());
        }
        if let [one] = known!(parts(relation)).as_slice() {
            let sees = |frame: &Frame| frame.names.iter().take(frame.visible).any(|(name, _)| name == one);
            if self.frames.iter().any(sees) {
                return ControlFlow::Continue(());
            }
        }
        self.add(SqlKind::Read, name);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        if let Expr::Function(Function { name, .. }) = expr {
            known!(self.call(name));
        }
        ControlFlow::Continue(())
    }
}
