//! The index in SQLite.

use super::{Index, IndexError, Summary};
use crate::Stamp;
use cofferdam_model::SessionId;
use rusqlite::{Connection, ErrorCode, Params, Row, TransactionBehavior, params};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Each brings the schema one version further; `user_version` says how many have been applied.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE traces (
        id TEXT PRIMARY KEY NOT NULL,
        started_us INTEGER NOT NULL,
        stamp TEXT NOT NULL,
        summary TEXT NOT NULL
    ) WITHOUT ROWID, STRICT;
    CREATE INDEX traces_by_start ON traces (started_us DESC, id DESC);
"];

const LATEST: i64 = MIGRATIONS.len() as i64;

const PATIENCE: Duration = Duration::from_secs(5);

pub struct SqliteIndex {
    db: Connection,
}

impl SqliteIndex {
    /// Opens or makes the database. One of a later version counts as damaged: it is only a cache.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Self::prepare(Connection::open(path).map_err(sort)?)
    }

    /// For when there is no place to keep it.
    pub fn in_memory() -> Result<Self, IndexError> {
        Self::prepare(Connection::open_in_memory().map_err(sort)?)
    }

    fn prepare(mut db: Connection) -> Result<Self, IndexError> {
        db.busy_timeout(PATIENCE).map_err(sort)?;
        db.pragma_update(None, "synchronous", "NORMAL").map_err(sort)?;
        db.pragma_update(None, "journal_mode", "WAL").map_err(sort)?;
        migrate(&mut db)?;
        Ok(Self { db })
    }

    fn summaries(&self, sql: &str, params: impl Params) -> Result<Vec<Summary>, IndexError> {
        let mut query = self.db.prepare_cached(sql).map_err(sort)?;
        let rows = query.query_map(params, |row| row.get::<_, String>(0)).map_err(sort)?;
        rows.map(|row| serde_json::from_str(&row.map_err(sort)?).map_err(|e| IndexError::Damaged(e.into())))
            .collect()
    }
}

fn migrate(db: &mut Connection) -> Result<(), IndexError> {
    if version(db)? == LATEST {
        return Ok(());
    }
    let step = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sort)?;
    // Asked again: another process may have done it while this one waited.
    let applied = version(&step)?;
    let missing = usize::try_from(applied).ok().and_then(|applied| MIGRATIONS.get(applied..));
    let missing =
        missing.ok_or_else(|| IndexError::Damaged(format!("no version {applied} is known").into()))?;
    for sql in missing {
        step.execute_batch(sql).map_err(sort)?;
    }
    step.pragma_update(None, "user_version", LATEST).map_err(sort)?;
    step.commit().map_err(sort)
}

fn version(db: &Connection) -> Result<i64, IndexError> {
    db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sort)
}

impl Index for SqliteIndex {
    fn stamps(&self) -> Result<HashMap<SessionId, Stamp>, IndexError> {
        let mut query = self.db.prepare_cached("SELECT id, stamp FROM traces").map_err(sort)?;
        let pair = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let rows = query.query_map([], pair).map_err(sort)?;
        rows.map(|row| {
            let (id, stamp) = row.map_err(sort)?;
            Ok((
                id.parse().map_err(|e: cofferdam_model::IdError| IndexError::Damaged(e.into()))?,
                Stamp(stamp),
            ))
        })
        .collect()
    }

    fn upsert(&mut self, entries: &[(Summary, Stamp)]) -> Result<(), IndexError> {
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sort)?;
        for (summary, stamp) in entries {
            let json = serde_json::to_string(summary).map_err(|e| IndexError::Unavailable(e.into()))?;
            let started = i64::try_from(summary.started_us).unwrap_or(i64::MAX);
            change
                .prepare_cached(
                    "INSERT OR REPLACE INTO traces (id, started_us, stamp, summary) VALUES (?, ?, ?, ?)",
                )
                .and_then(|mut sql| sql.execute(params![summary.id.as_str(), started, stamp.0, json]))
                .map_err(sort)?;
        }
        change.commit().map_err(sort)
    }

    fn remove(&mut self, ids: &[SessionId]) -> Result<(), IndexError> {
        let change = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sort)?;
        for id in ids {
            change
                .prepare_cached("DELETE FROM traces WHERE id = ?")
                .and_then(|mut sql| sql.execute([id.as_str()]))
                .map_err(sort)?;
        }
        change.commit().map_err(sort)
    }

    fn list(&self, limit: usize) -> Result<Vec<Summary>, IndexError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.summaries("SELECT summary FROM traces ORDER BY started_us DESC, id DESC LIMIT ?", [limit])
    }

    fn find(&self, prefix: &str, limit: usize) -> Result<Vec<Summary>, IndexError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // `{` follows the last letter that an id can hold. Unlike LIKE, a range has no wildcards and uses the key.
        self.summaries(
            "SELECT summary FROM traces WHERE id >= ?1 AND id < ?1 || '{' ORDER BY started_us DESC, id DESC LIMIT ?2",
            params![prefix, limit],
        )
    }
}

/// Whether a new database would help.
fn sort(error: rusqlite::Error) -> IndexError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::SchemaChanged
            | ErrorCode::Unknown,
        ) => IndexError::Damaged(error.into()),
        _ => IndexError::Unavailable(error.into()),
    }
}
