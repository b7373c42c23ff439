//! The traces of a home, as a list. It answers from the index after bringing that up to date, and where the
//! index fails it is made again, on disk or, at worst, in memory: a cache is never a reason to refuse an answer.

use crate::{
    Bundles, BundlesError, Home, Index, IndexError, LocalBundles, SqliteIndex, Stamp, Summary, TraceState,
};
use cofferdam_model::SessionId;
use std::fs;
use std::path::{Path, PathBuf};

/// How many traces are looked at before what was found is kept.
const BATCH: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error(transparent)]
    Bundles(#[from] BundlesError),
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// Says what a bundle holds. It cannot fail: of a bundle that cannot be read, that is what there is to say.
type Summarise<'a> = Box<dyn FnMut(&SessionId, &Path) -> Summary + 'a>;

pub struct Catalog<'a> {
    bundles: Box<dyn Bundles>,
    index: Box<dyn Index>,
    file: PathBuf,
    summarise: Summarise<'a>,
}

impl Home {
    /// The bundles of this home. `watched` is the file of a bundle whose growth tells that it has changed.
    pub fn bundles(&self, watched: &'static str) -> LocalBundles {
        LocalBundles::new(self.traces_dir(), watched)
    }

    /// Only for commands that list or find traces: the way of a run does not lead through here.
    pub fn catalog<'a>(
        &self,
        bundles: impl Bundles + 'static,
        summarise: impl FnMut(&SessionId, &Path) -> Summary + 'a,
    ) -> Result<Catalog<'a>, CatalogError> {
        let file = self.index_file();
        let index = match SqliteIndex::open(&file) {
            Ok(index) => index,
            Err(error) => replacement(&error, &file)?,
        };
        let (bundles, summarise) = (Box::new(bundles), Box::new(summarise));
        Ok(Catalog { bundles, index: Box::new(index), file, summarise })
    }
}

/// A new database in place of a damaged one; one in memory where none can be kept.
fn replacement(error: &IndexError, file: &Path) -> Result<SqliteIndex, IndexError> {
    if matches!(error, IndexError::Damaged(_)) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = file.as_os_str().to_owned();
            path.push(suffix);
            let _ = fs::remove_file(path);
        }
        if let Ok(index) = SqliteIndex::open(file) {
            return Ok(index);
        }
    }
    SqliteIndex::in_memory()
}

impl Catalog<'_> {
    /// The newest first.
    pub fn list(&mut self, limit: usize) -> Result<Vec<Summary>, CatalogError> {
        self.answer(|index| index.list(limit))
    }

    /// Those whose id begins so, the newest first.
    pub fn find(&mut self, prefix: &str, limit: usize) -> Result<Vec<Summary>, CatalogError> {
        self.answer(|index| index.find(prefix, limit))
    }

    /// Removes the trace itself, not only its entry.
    pub fn remove(&mut self, id: &SessionId) -> Result<(), CatalogError> {
        Ok(self.bundles.remove(id)?)
    }

    fn answer<T>(&mut self, ask: impl Fn(&dyn Index) -> Result<T, IndexError>) -> Result<T, CatalogError> {
        for _ in 0..2 {
            match self.sync().and_then(|()| Ok(ask(&*self.index)?)) {
                Err(CatalogError::Index(error)) => self.index = Box::new(replacement(&error, &self.file)?),
                answer => return answer,
            }
        }
        self.index = Box::new(SqliteIndex::in_memory()?);
        self.sync()?;
        Ok(ask(&*self.index)?)
    }

    /// Brings the index up to date with the bundles.
    fn sync(&mut self) -> Result<(), CatalogError> {
        let mut known = self.index.stamps()?;
        let mut batch = Vec::new();
        for (id, stamp) in self.bundles.list()? {
            if known.remove(&id).is_some_and(|known| known == stamp) {
                continue;
            }
            let Ok(path) = self.bundles.local(&id) else { continue };
            let summary = (self.summarise)(&id, &path);
            // A running trace has another state as soon as its writer dies, without a byte being changed:
            // a stamp that no bundle has makes sure that it is looked at again.
            let stamp = if summary.state == TraceState::Running { Stamp::default() } else { stamp };
            batch.push((summary, stamp));
            if batch.len() == BATCH {
                self.index.upsert(&batch)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            self.index.upsert(&batch)?;
        }
        let gone: Vec<SessionId> = known.into_keys().collect();
        if gone.is_empty() { Ok(()) } else { Ok(self.index.remove(&gone)?) }
    }
}
