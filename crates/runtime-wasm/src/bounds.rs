//! How much a module may have. What it asks for beyond that is refused to it as `memory.grow` refuses, and remembered,
//! so that whoever reads why it broke is told of it.

use wasmi::ResourceLimiter;
use wasmi_core::LimiterError;

/// Entries of a module's tables, all together: pointers of ours, which its memory does not count.
const ENTRIES: usize = 1 << 20;
const TABLES: usize = 16;

pub(crate) struct Bounds {
    most: usize,
    pub(crate) refused: bool,
}

impl Bounds {
    pub(crate) fn new(most: u64) -> Self {
        Self { most: usize::try_from(most).unwrap_or(usize::MAX), refused: false }
    }
}

impl ResourceLimiter for Bounds {
    fn memory_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> Result<bool, LimiterError> {
        let fits = wanted <= self.most;
        self.refused |= !fits;
        Ok(fits)
    }

    fn table_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> Result<bool, LimiterError> {
        Ok(wanted <= ENTRIES / TABLES)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        1
    }
}
