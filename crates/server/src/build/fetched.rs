//! Which tenant's builds have fetched which image, so that what each may take of the disk by it is bounded. An image that
//! several have fetched is counted for each of them; one that is removed is counted for nobody.

use crate::app::State;
use cofferdam_engine::{EngineError, ImageAsked};
use cofferdam_model::{Bytes, Digest, ImageInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Known = BTreeMap<String, BTreeSet<Digest>>;

/// A line each: the image, then the tenant. Only ever added to.
pub(crate) struct Fetched {
    known: Mutex<(Known, File)>,
    /// One at a time for each tenant: two at once would both have what is left.
    turns: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fetched {
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let path = home.join("service").join("fetched");
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path)?;
        let mut known = Known::new();
        for line in BufReader::new(&file).lines().map_while(Result::ok) {
            if let Some((digest, tenant)) = line.split_once(' ')
                && let Ok(digest) = digest.parse()
            {
                known.entry(tenant.to_owned()).or_default().insert(digest);
            }
        }
        Ok(Self { known: Mutex::new((known, file)), turns: Mutex::default() })
    }

    fn turn(&self, tenant: &str) -> Arc<Mutex<()>> {
        locked(&self.turns).entry(tenant.to_owned()).or_default().clone()
    }

    /// What is left of `space`, with what is there now.
    fn left(&self, tenant: &str, images: &[ImageInfo], space: u64) -> u64 {
        let known = locked(&self.known);
        let Some(fetched) = known.0.get(tenant) else { return space };
        let taken = images.iter().filter(|image| fetched.contains(&image.digest)).map(|image| image.bytes);
        space.saturating_sub(taken.sum())
    }

    fn has(&self, tenant: &str, digest: &Digest) -> bool {
        locked(&self.known).0.get(tenant).is_some_and(|fetched| fetched.contains(digest))
    }

    /// On file before it counts: what cannot be written is not fetched for anybody.
    fn enter(&self, tenant: &str, digest: Digest) -> io::Result<()> {
        let mut known = locked(&self.known);
        let (known, file) = &mut *known;
        if known.get(tenant).is_some_and(|fetched| fetched.contains(&digest)) {
            return Ok(());
        }
        file.write_all(format!("{digest} {tenant}\n").as_bytes())?;
        known.entry(tenant.to_owned()).or_default().insert(digest);
        Ok(())
    }
}

/// Takes in an image for a tenant, as far as there is space left for it. One that it has already is fetched again and
/// takes no more than before, which is known only when it is here.
pub(super) fn fetch(app: &State, tenant: &str, asked: ImageAsked) -> Result<Digest, EngineError> {
    let turn = app.fetched.turn(tenant);
    let _turn = locked(&turn);
    let (space, images) = (app.config.e2b.image_space, app.engine.images());
    let left = app.fetched.left(tenant, &images, space.0);
    let again =
        images.iter().find(|image| asked.name.as_ref().is_some_and(|name| image.names.contains(name)));
    let again = again.filter(|image| app.fetched.has(tenant, &image.digest)).map_or(0, |image| image.bytes);
    let full = || {
        EngineError::Declined(format!(
            "images that this tenant's builds have fetched would take more than {space} of the disk (`e2b.image-space`): remove some with `cofferdam image rm`"
        ))
    };
    let most = left.saturating_add(again);
    if most == 0 {
        return Err(full());
    }
    let image = app.engine.import_image(&ImageAsked { most: Some(Bytes(most)), ..asked })?;
    if image.bytes > left && !app.fetched.has(tenant, &image.digest) {
        // Others may have it too, and then it stays for them.
        if !images.iter().any(|before| before.digest == image.digest) {
            app.engine.remove_image(&format!("sha256:{}", image.digest))?;
        }
        return Err(full());
    }
    let entered = app.fetched.enter(tenant, image.digest);
    entered.map_err(|source| EngineError::Io { doing: "write down whose image it is", source })?;
    Ok(image.digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_has_fetched_is_counted_as_long_as_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("service")).unwrap();
        let image = |byte: u8, bytes: u64| {
            let digest = format!("{byte:02x}").repeat(32);
            let text = format!(
                r#"{{"names":[],"digest":"{digest}","source":"","architecture":"","created_us":0,"layers":1,"files":1,
                "bytes":{bytes},"config":{{}},"owners":true,"user":"user","home":"/","notes":{{}},"in_use":false}}"#
            );
            serde_json::from_str::<ImageInfo>(&text).unwrap()
        };
        let (one, two) = (image(1, 60), image(2, 70));
        let fetched = Fetched::open(dir.path()).unwrap();
        for digest in [one.digest, one.digest, two.digest] {
            fetched.enter("ada", digest).unwrap();
        }
        fetched.enter("bob", two.digest).unwrap();
        assert!(fetched.has("bob", &two.digest) && !fetched.has("bob", &one.digest));
        // Also after a restart.
        for fetched in [fetched, Fetched::open(dir.path()).unwrap()] {
            let left = |tenant: &str, images: &[ImageInfo]| fetched.left(tenant, images, 100);
            assert_eq!(left("ada", std::slice::from_ref(&one)), 40);
            assert_eq!(left("ada", &[one.clone(), two.clone()]), 0, "never less than nothing");
            assert_eq!(left("bob", &[one.clone(), two.clone()]), 30);
            assert_eq!(left("eve", &[one.clone(), two.clone()]), 100);
            assert_eq!(left("ada", &[]), 100, "what is removed is counted for nobody");
        }
        let lines = std::fs::read_to_string(dir.path().join("service/fetched")).unwrap().lines().count();
        assert_eq!(lines, 3, "once each");
    }
}
