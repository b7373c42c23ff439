//! A layer on another file system: packed and unpacked at once, since that carries all that a layer can hold.

use super::{About, Most, pack, unpack};
use cofferdam_model::{Provenance, SessionId};
use cofferdam_runtime::RuntimeError;
use std::io;
use std::path::{Path, PathBuf};

/// Copies the layer `from` to the directory `to`, which is made.
pub(crate) fn duplicate(
    from: &Path,
    to: &Path,
    by_root: bool,
    since: Provenance,
) -> Result<(), RuntimeError> {
    let failed = |error: io::Error| RuntimeError::io(format!("copy the layer to {}", to.display()))(error);
    let (reader, writer) = io::pipe().map_err(failed)?;
    let about = About::new(SessionId::new(0, 0), PathBuf::new(), 1, since);
    let layers = [from.to_owned()];
    let most = Most { bytes: u64::MAX, entries: u64::MAX >> 11, sync: false };
    std::thread::scope(|scope| {
        let packing = scope.spawn(|| pack(&about, &layers, by_root, writer));
        let unpacked = unpack(reader, by_root, most, &mut |_| Ok(vec![to.to_owned()]));
        let packed = packing.join().map_err(|_| failed(io::Error::other("it ended early")))?;
        // What was packed badly is the cause of what was unpacked badly.
        packed.map_err(|error| failed(io::Error::other(error)))?;
        unpacked.map(drop).map_err(|error| failed(io::Error::other(error)))
    })
}
