//! Which tenant's builds have fetched which image, so that what each may take of the disk by it is bounded. An image that
//! several have fetched is counted for each of them; one that is removed is counted for nobody.
//!
//! Where the space is needed, what nobody has used for the longest time goes: never what runs, what a template or a snapshot
//! begins with, what another tenant has fetched too, or what the operator has given a name.

use crate::app::{State, now_us};
use crate::template::FETCHED;
use cofferdam_engine::{EngineError, ImageAsked};
use cofferdam_model::{Bytes, Digest, ImageInfo};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A build that has found its image may not have begun with it yet: for so long it is left alone.
const RECENT_US: u64 = 10 * 60 * 1_000_000;

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

    /// What may go of this tenant's, the longest unused first.
    fn idle<'i>(
        &self,
        tenant: &str,
        images: &'i [ImageInfo],
        needed: &BTreeSet<Digest>,
        now_us: u64,
    ) -> Vec<&'i ImageInfo> {
        let known = locked(&self.known);
        let of = |who: &BTreeSet<Digest>, image: &ImageInfo| who.contains(&image.digest);
        let own = |image: &&ImageInfo| known.0.get(tenant).is_some_and(|fetched| of(fetched, image));
        let others =
            |image: &&ImageInfo| known.0.iter().any(|(other, fetched)| other != tenant && of(fetched, image));
        let unused = |image: &&ImageInfo| {
            !image.in_use
                && !needed.contains(&image.digest)
                && image.used_us.saturating_add(RECENT_US) < now_us
                && image.names.iter().all(|name| name.as_str().starts_with(FETCHED))
        };
        let mut idle: Vec<_> = images.iter().filter(own).filter(unused).filter(|i| !others(i)).collect();
        idle.sort_by_key(|image| (image.used_us, image.digest));
        idle
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
/// takes no more than before, which is known only when it is here. While it comes, what is to make room is still there.
pub(super) fn fetch(app: &State, tenant: &str, asked: ImageAsked) -> Result<Digest, EngineError> {
    let turn = app.fetched.turn(tenant);
    let _turn = locked(&turn);
    let (space, images) = (app.config.e2b.image_space, app.engine.images());
    let left = app.fetched.left(tenant, &images, space.0);
    let again =
        images.iter().find(|image| asked.name.as_ref().is_some_and(|name| image.names.contains(name)));
    let again = again.filter(|image| app.fetched.has(tenant, &image.digest));
    let idle = idle(app, tenant, &images);
    let full = || {
        EngineError::Declined(format!(
            "images that this tenant's builds have fetched and that are in use would take more than {space} of the disk (`e2b.image-space`): remove templates that begin with one, or some with `cofferdam image rm`"
        ))
    };
    // It may be one of those that could go, and is not counted twice then.
    let kept = again.filter(|image| !idle.iter().any(|idle| idle.digest == image.digest));
    let could_go: u64 = idle.iter().map(|image| image.bytes).sum();
    let most = left.saturating_add(could_go).saturating_add(kept.map_or(0, |image| image.bytes));
    if most == 0 {
        return Err(full());
    }
    let image = app.engine.import_image(&ImageAsked { most: Some(Bytes(most)), ..asked })?;
    let fits = app.fetched.has(tenant, &image.digest) || make_room(app, &image, left, &idle);
    if !fits {
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

fn idle<'i>(app: &State, tenant: &str, images: &'i [ImageInfo]) -> Vec<&'i ImageInfo> {
    let needed = app.engine.snapshots().into_iter().filter_map(|snapshot| snapshot.image).collect();
    app.fetched.idle(tenant, images, &needed, now_us())
}

/// Removes what has to go for this one; whether that was enough. What somebody has begun to use meanwhile is refused by the
/// engine, and stays.
fn make_room(app: &State, image: &ImageInfo, mut left: u64, idle: &[&ImageInfo]) -> bool {
    for old in idle.iter().filter(|old| old.digest != image.digest) {
        if image.bytes <= left {
            break;
        }
        if app.engine.remove_image(&format!("sha256:{}", old.digest)).is_ok() {
            app.log.info("image removed", json!({ "image": old.digest.to_string(), "bytes": old.bytes }));
            left = left.saturating_add(old.bytes);
        }
    }
    image.bytes <= left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(byte: u8, bytes: u64) -> ImageInfo {
        let digest = format!("{byte:02x}").repeat(32);
        let text = format!(
            r#"{{"names":["registry/{byte}"],"digest":"{digest}","source":"","architecture":"","created_us":0,"layers":1,"files":1,
            "bytes":{bytes},"config":{{}},"owners":true,"user":"user","home":"/","notes":{{}},"in_use":false}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_is_longest_unused_may_go_and_nothing_that_anybody_needs() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("service")).unwrap();
        let fetched = Fetched::open(dir.path()).unwrap();
        let now = RECENT_US * 10;
        let used = |byte: u8, used_us: u64| ImageInfo { used_us, ..image(byte, 10) };
        let running = ImageInfo { in_use: true, ..used(3, 0) };
        let named = ImageInfo { names: vec!["app".parse().unwrap()], ..used(4, 0) };
        let (needed, shared, recent, anothers) = (used(5, 0), used(6, 0), used(7, now - 1), used(8, 0));
        let all = [
            used(2, 7),
            used(1, 5),
            running,
            named,
            needed.clone(),
            shared.clone(),
            recent,
            anothers.clone(),
        ];
        for image in all.iter().filter(|image| image.digest != anothers.digest) {
            fetched.enter("ada", image.digest).unwrap();
        }
        fetched.enter("bob", shared.digest).unwrap();
        fetched.enter("bob", anothers.digest).unwrap();
        let idle = |tenant: &str| -> Vec<u64> {
            let needed = BTreeSet::from([needed.digest]);
            fetched.idle(tenant, &all, &needed, now).iter().map(|image| image.used_us).collect()
        };
        assert_eq!(idle("ada"), [5, 7]);
        assert_eq!(idle("bob"), [0], "its own alone");
        assert_eq!(idle("eve"), [0; 0]);
    }

    #[test]
    fn what_a_tenant_has_fetched_is_counted_as_long_as_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("service")).unwrap();
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
