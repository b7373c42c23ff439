//! The user namespaces by which root's sandboxes map ids: the one that a sandbox ends up in, and the one that shows the
//! owner of its work dir as the inside's user. To make one takes a process, so a process that makes many sandboxes keeps
//! those of the ones that have ended, for whoever wants the same maps next. Nobody inside has a right in them by which
//! anything of them could be changed, and each is one sandbox's alone as long as that stands.

use crate::users::{Users, Way};
use cofferdam_runtime::RuntimeError;
use cofferdam_sys::boot::Given;
use cofferdam_sys::idmap::{self, Holder};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many are kept, the latest.
const MOST: usize = 128;

/// As they are written: of users, of groups.
type Maps = (String, String);

#[derive(Debug)]
struct Namespace {
    maps: Maps,
    file: OwnedFd,
}

static SPARE: Mutex<Vec<Namespace>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Namespace>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a sandbox has of them.
#[derive(Default)]
pub(crate) struct Ids {
    sandbox: Option<Namespace>,
    workdir: Option<Namespace>,
    /// Helpers that are not needed any more and not yet waited for.
    holders: Vec<Holder>,
}

impl Ids {
    /// Sees to those that a sandbox of these users wants for a work dir of this owner.
    pub(crate) fn map(&mut self, users: &Users, owner: (u32, u32)) -> Result<(), RuntimeError> {
        if users.way != Way::Root {
            return Ok(());
        }
        if self.sandbox.is_none() {
            let maps = (users.uid_map.clone(), users.gid_map.clone());
            self.sandbox = Some(self.namespace(maps, "make the sandbox's user namespace")?);
        }
        // Where its owner is the inside's user already, there is nothing to translate, whatever was made ahead.
        if owner == (users.host_uid, users.host_gid) {
            self.workdir.take().into_iter().for_each(keep);
            return Ok(());
        }
        let maps = users.idmap_for(owner);
        if self.workdir.as_ref().is_none_or(|made| made.maps != maps) {
            let made = self.namespace(maps, "make the id map of the work dir")?;
            self.workdir.replace(made).into_iter().for_each(keep);
        }
        Ok(())
    }

    fn namespace(&mut self, maps: Maps, doing: &str) -> Result<Namespace, RuntimeError> {
        let mut spare = spare();
        if let Some(at) = spare.iter().position(|kept| kept.maps == maps) {
            return Ok(spare.swap_remove(at));
        }
        drop(spare);
        let (file, holder) = idmap::namespace(&maps.0, &maps.1).map_err(RuntimeError::io(doing))?;
        self.holders.push(holder);
        Ok(Namespace { maps, file })
    }

    /// Whether owners are translated.
    pub(crate) fn translate(&self) -> bool {
        self.workdir.is_some()
    }

    /// For the child.
    pub(crate) fn given(&self) -> Given<'_> {
        let [id_map, user_namespace] =
            [&self.workdir, &self.sandbox].map(|made| made.as_ref().map(|made| made.file.as_fd()));
        Given { id_map, user_namespace, scratch: None }
    }

    /// Ends the helpers, without waiting for that.
    pub(crate) fn dismiss(&self) {
        self.holders.iter().for_each(Holder::dismiss);
    }

    /// Waits for their end.
    pub(crate) fn wait(&mut self) {
        self.holders.clear();
    }

    /// Nothing that was in them is left.
    pub(crate) fn give_back(&mut self) {
        self.wait();
        [self.sandbox.take(), self.workdir.take()].into_iter().flatten().for_each(keep);
    }
}

fn keep(namespace: Namespace) {
    let mut spare = spare();
    if spare.len() == MOST {
        spare.remove(0);
    }
    spare.push(namespace);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn inode(ids: &Ids) -> (u64, Option<u64>) {
        let number =
            |file: &OwnedFd| std::fs::File::from(file.try_clone().unwrap()).metadata().unwrap().ino();
        let Some(sandbox) = &ids.sandbox else { panic!("nothing was made") };
        (number(&sandbox.file), ids.workdir.as_ref().map(|made| number(&made.file)))
    }

    /// One that two had at once would be nobody's own.
    #[test]
    fn a_namespace_is_handed_on_only_once_it_is_given_back() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let id = 1_899_000_000 + std::process::id() % 1_000_000;
        let users = Users::for_tests(Way::Root, id);
        let (mut first, mut second) = (Ids::default(), Ids::default());
        first.map(&users, (0, 0)).unwrap();
        second.map(&users, (0, 0)).unwrap();
        let (one, other) = (inode(&first), inode(&second));
        assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
        first.give_back();
        assert!(!first.translate() && first.given().user_namespace.is_none());
        let mut third = Ids::default();
        third.map(&users, (0, 0)).unwrap();
        assert_eq!(inode(&third), one, "as good as new");
        third.map(&users, (id, id)).unwrap();
        assert!(!third.translate(), "there is nothing to translate for who is the owner");
        third.map(&users, (1, 1)).unwrap();
        let own = inode(&third).1;
        assert!(own.is_some() && own != one.1, "another owner has another map");
    }

    #[test]
    fn plain_users_have_none() {
        let mut ids = Ids::default();
        ids.map(&Users::for_tests(Way::Single, 7), (7, 7)).unwrap();
        assert!(ids.given().user_namespace.is_none() && !ids.translate());
    }
}
