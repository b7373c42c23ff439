//! Images: trees of files of the state directory that sandboxes have for their root, by name.
//!
//! ```text
//! images/ID/rootfs, image.json    an image by the digest of its config, and what is known of it
//! images/ID/lock                  held by every session that has it
//! images/names/NAME               which one a name means
//! images/.making-ID, .gone-ID     one on its way in or out
//! ```
//!
//! An image comes about and goes by one rename, and a name is written after that: a killed process leaves neither a name
//! without its image nor half of one. Whoever makes one holds its lock, so that what was left behind is known at once.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_image::{Access, Imported, Most, Place};
use cofferdam_model::{
    BoxUser, Bytes, Digest, ImageAccount, ImageConfig, ImageInfo, ImageName, Profile, SessionSpec,
};
use cofferdam_runtime::{Identity, Root, SandboxSpec};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAKING: &str = ".making-";
const GONE: &str = ".gone-";
const NAMES: &str = "names";
/// Of a digest, in place of a name.
const SHORTEST: usize = 12;

/// What is to be imported.
#[derive(Debug, Clone)]
pub struct ImageAsked {
    /// A path, or `docker://HOST/REPO:TAG`.
    pub from: String,
    pub name: Option<ImageName>,
    /// Which of several that are there.
    pub wanted: Option<String>,
    pub most: Option<Bytes>,
    /// `user:password`, for a registry.
    pub login: Option<String>,
}

/// An image that a session has: nobody removes it meanwhile.
pub(crate) struct TakenImage {
    pub(crate) root: Root,
    pub(crate) config: ImageConfig,
    runs_as: Option<ImageAccount>,
    _lock: File,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Io { doing, source }
}

fn declined(text: impl Into<String>) -> EngineError {
    EngineError::Declined(text.into())
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Engine {
    fn image_dir(&self, digest: &Digest) -> PathBuf {
        self.home.images_dir().join(digest.to_string())
    }

    /// Names are made of what file names may be, but for two signs.
    fn name_file(&self, name: &ImageName) -> PathBuf {
        self.home.images_dir().join(NAMES).join(name.as_str().replace('/', "%2F").replace(':', "%3A"))
    }

    /// Takes an image in, under a name.
    pub fn import_image(&self, asked: &ImageAsked) -> Result<ImageInfo, EngineError> {
        let place = match asked.from.starts_with("docker://") {
            true => Place::Registry(asked.from.parse()?),
            false => Place::Path(PathBuf::from(&asked.from)),
        };
        if let Place::Path(path) = &place {
            // Else it would be told that it gives no name.
            fs::metadata(path).map_err(|source| EngineError::Unreadable { path: path.clone(), source })?;
        }
        let name = match &asked.name {
            Some(name) => name.clone(),
            None => default_name(&place).ok_or_else(|| {
                declined(format!("{} gives no name for the image: say one with --name", asked.from))
            })?,
        };
        let all = self.home.images_dir();
        make_dir(&all.join(NAMES)).map_err(failed("make the directory of images"))?;
        self.sweep_images();
        let making = all.join(format!("{MAKING}{}", self.new_id()?));
        let result = self.unpack_image(asked, &place, &making);
        let named = result.and_then(|digest| {
            let _alone = self.alone_with_images().map_err(failed("name the image"))?;
            write_whole(
                &self.name_file(&name),
                &making.with_extension("name"),
                digest.to_string().as_bytes(),
            )
            .map_err(failed("name the image"))?;
            self.image(&digest.to_string())
        });
        cofferdam_runtime_process::remove_layer(&making);
        named
    }

    /// For as long as it lives nobody else begins an import, or sweeps.
    fn alone_with_images(&self) -> io::Result<File> {
        let all = File::open(self.home.images_dir())?;
        rustix::fs::flock(&all, FlockOperation::LockExclusive)?;
        Ok(all)
    }

    fn unpack_image(&self, asked: &ImageAsked, place: &Place, making: &Path) -> Result<Digest, EngineError> {
        let making_it = || failed("make a place for the image");
        let alone = self.alone_with_images().map_err(making_it())?;
        make_dir(&making.join("rootfs")).map_err(making_it())?;
        // Whoever is inside may enter; who else is on this host does not get here.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(making.join("rootfs"), open).map_err(making_it())?;
        let lock =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(making.join("lock"));
        let lock = lock.map_err(making_it())?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| making_it()(errno.into()))?;
        drop(alone);
        let access = Access { login: asked.login.clone() };
        let most = Most { bytes: asked.most.map_or(Most::default().bytes, |most| most.0), ..Most::default() };
        let mut source = cofferdam_image::open(place, access, making, most)?;
        let imported =
            cofferdam_image::import(source.as_mut(), asked.wanted.as_deref(), &making.join("rootfs"), most)?;
        let digest = imported.digest;
        let info = info(imported, asked.from.clone());
        let text =
            serde_json::to_vec_pretty(&info).map_err(|error| failed("describe the image")(error.into()))?;
        write_whole(&making.join("image.json"), &making.join("image.making"), &text)
            .and_then(|()| Ok(rustix::fs::syncfs(&lock)?))
            .map_err(failed("write the image to disk"))?;
        let dir = self.image_dir(&digest);
        match fs::rename(making, &dir) {
            Ok(()) => Ok(digest),
            // Somebody has it already, from wherever.
            Err(_) if dir.join("image.json").is_file() => {
                let _ = self::lock(&dir).map(|lock| note_use(&lock));
                Ok(digest)
            }
            Err(error) => Err(failed("put the image in its place")(error)),
        }
    }

    fn image_names(&self) -> BTreeMap<Digest, Vec<ImageName>> {
        let mut found = BTreeMap::<Digest, Vec<ImageName>>::new();
        for entry in fs::read_dir(self.home.images_dir().join(NAMES)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_str().map(|name| name.replace("%2F", "/").replace("%3A", ":"));
            let name = name.and_then(|name| name.parse::<ImageName>().ok());
            let digest = fs::read_to_string(entry.path()).ok().and_then(|text| text.trim().parse().ok());
            if let (Some(name), Some(digest)) = (name, digest) {
                found.entry(digest).or_default().push(name);
            }
        }
        found.values_mut().for_each(|names| names.sort());
        found
    }

    /// All of them.
    pub fn images(&self) -> Vec<ImageInfo> {
        let names = self.image_names();
        let entries = fs::read_dir(self.home.images_dir()).into_iter().flatten().flatten();
        let digests = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Digest>().ok());
        let mut found: Vec<ImageInfo> =
            digests.filter_map(|digest| self.read_image(&digest, &names)).collect();
        found.sort_by(|one, other| (&one.names, one.digest).cmp(&(&other.names, other.digest)));
        found
    }

    fn read_image(&self, digest: &Digest, names: &BTreeMap<Digest, Vec<ImageName>>) -> Option<ImageInfo> {
        let dir = self.image_dir(digest);
        let info: ImageInfo = serde_json::from_slice(&fs::read(dir.join("image.json")).ok()?).ok()?;
        let lock = lock(&dir).ok();
        let in_use = lock.as_ref().is_some_and(is_held);
        let used_us = lock.as_ref().and_then(used_us).unwrap_or(info.created_us);
        Some(ImageInfo { names: names.get(digest).cloned().unwrap_or_default(), in_use, used_us, ..info })
    }

    /// By a name, a digest, or the beginning of one.
    fn find_image(&self, text: &str) -> Result<Digest, EngineError> {
        let missing = || {
            declined(format!(
                "there is no image `{text}`: see `cofferdam image ls`, or take one in with `cofferdam image import`"
            ))
        };
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let is_hex =
            hex.len() >= SHORTEST && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        // A whole digest is what it is, whatever anybody is called.
        if let Ok(digest) = hex.parse::<Digest>() {
            return self.image_dir(&digest).is_dir().then_some(digest).ok_or_else(missing);
        }
        if let Ok(name) = text.parse::<ImageName>()
            && let Ok(digest) = fs::read_to_string(self.name_file(&name))
        {
            return digest.trim().parse().map_err(|_| missing());
        }
        let entries = fs::read_dir(self.home.images_dir()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let fits: Vec<Digest> = names
            .filter(|name| is_hex && name.starts_with(hex))
            .filter_map(|name| name.parse().ok())
            .collect();
        match fits.as_slice() {
            [one] => Ok(*one),
            [] => Err(missing()),
            several => Err(EngineError::Ambiguous { prefix: text.to_owned(), count: several.len() }),
        }
    }

    pub fn image(&self, text: &str) -> Result<ImageInfo, EngineError> {
        let digest = self.find_image(text)?;
        self.read_image(&digest, &self.image_names())
            .ok_or_else(|| declined(format!("the image `{text}` is gone: take it in again")))
    }

    /// Removes a name, and with the last one the image; by its digest, all of it. Not while anyone has it.
    pub fn remove_image(&self, text: &str) -> Result<(), EngineError> {
        let digest = self.find_image(text)?;
        let names = self.image_names().remove(&digest).unwrap_or_default();
        let named: Option<ImageName> = text.parse().ok().filter(|name| names.contains(name));
        if let Some(name) = named.as_ref().filter(|_| names.len() > 1) {
            return fs::remove_file(self.name_file(name)).map_err(failed("remove the image's name"));
        }
        let dir = self.image_dir(&digest);
        let lock = lock(&dir).map_err(|_| declined(format!("the image `{text}` is gone already")));
        let lock = match lock {
            Ok(lock) => lock,
            Err(error) => {
                names.iter().for_each(|name| drop(fs::remove_file(self.name_file(name))));
                return Err(error);
            }
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(declined(format!("the image `{text}` is in use: end its sessions first")));
        }
        let needs = |snapshot: &cofferdam_model::Snapshot| snapshot.image == Some(digest);
        if let Some(snapshot) = self.snapshots().into_iter().find(needs) {
            let name = snapshot.name;
            return Err(declined(format!(
                "the snapshot `{name}` begins with the image `{text}`: remove it first with `cofferdam session snapshots --rm {name}`"
            )));
        }
        for name in &names {
            fs::remove_file(self.name_file(name)).map_err(failed("remove the image's name"))?;
        }
        let gone = self.home.images_dir().join(format!("{GONE}{}", self.new_id()?));
        fs::rename(&dir, &gone).map_err(failed("remove the image"))?;
        cofferdam_runtime_process::remove_layer(&gone);
        Ok(())
    }

    /// Takes it for a session.
    pub(crate) fn take_image(&self, text: &str) -> Result<TakenImage, EngineError> {
        let digest = self.find_image(text)?;
        let dir = self.image_dir(&digest);
        let gone = || declined(format!("the image `{text}` is gone: take it in again"));
        let lock = lock(&dir).map_err(|_| gone())?;
        // Who only looks holds it for a moment; who removes the image leaves another one here, or none.
        let held = rustix::fs::flock(&lock, FlockOperation::LockShared).is_ok();
        let inode = |meta: io::Result<fs::Metadata>| meta.ok().map(|meta| meta.ino());
        if !held || inode(lock.metadata()) != inode(fs::metadata(dir.join("lock"))) {
            return Err(gone());
        }
        note_use(&lock);
        let info = self.read_image(&digest, &self.image_names()).ok_or_else(gone)?;
        let name = info.names.first().map_or_else(|| short(&digest), |name| name.to_string());
        let root = Root {
            files: dir.join("rootfs"),
            name,
            digest: format!("sha256:{digest}"),
            owners: info.owners,
            user: info.user,
            home: info.home,
        };
        Ok(TakenImage { root, config: info.config, runs_as: info.runs_as, _lock: lock })
    }

    /// Gives a sandbox the image that its session asks for.
    pub(crate) fn furnish_image(
        &self,
        spec: &SessionSpec,
        asked: &mut SandboxSpec,
    ) -> Result<Option<TakenImage>, EngineError> {
        let image = spec.image.as_deref().map(|name| self.take_image(name)).transpose()?;
        asked.root = image.as_ref().map(|image| image.root.clone());
        Ok(image)
    }

    /// Where nobody says what is to run, an image may.
    pub(crate) fn name_command(&self, spec: &mut SessionSpec) -> Result<(), EngineError> {
        if let Some(image) = spec.image.as_deref().filter(|_| spec.command.is_empty()) {
            spec.command = self.take_image(image)?.command();
        }
        Ok(())
    }

    /// What a process that was killed left on its way.
    fn sweep_images(&self) {
        let Ok(_alone) = self.alone_with_images() else { return };
        for entry in fs::read_dir(self.home.images_dir()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Whoever is at work has its lock: it was made while nobody swept.
            let dead = || match lock(&entry.path()) {
                Ok(lock) => !is_held(&lock),
                Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
            };
            if name.starts_with(GONE) || (name.starts_with(MAKING) && dead()) {
                cofferdam_runtime_process::remove_layer(&entry.path());
            }
        }
    }
}

impl TakenImage {
    /// What the image runs by itself.
    pub(crate) fn command(&self) -> Vec<String> {
        self.config.entrypoint.iter().chain(&self.config.cmd).cloned().collect()
    }

    fn is_own(&self, command: &[String]) -> bool {
        !command.is_empty() && command == self.command()
    }

    /// Its own command is who it was meant to be, in a box, where there are several; others are the sandbox's user.
    pub(crate) fn who(&self, spec: &SessionSpec) -> Option<(Identity, Vec<u32>)> {
        let plain = spec.profile == Profile::Box && spec.user == BoxUser::User;
        let ImageAccount { name, uid, gid, home, .. } =
            self.runs_as.clone().filter(|_| plain && self.is_own(&spec.command))?;
        Some((Identity { name, uid, gid, home }, Vec::new()))
    }

    /// Its own command runs where it was meant to; others in the work dir.
    pub(crate) fn cwd(&self, command: &[String]) -> Option<PathBuf> {
        self.is_own(command)
            .then(|| self.config.workdir.clone().map_or_else(|| PathBuf::from("/"), PathBuf::from))
    }
}

pub(crate) fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(SHORTEST).collect()
}

fn info(imported: Imported, source: String) -> ImageInfo {
    ImageInfo {
        names: Vec::new(),
        digest: imported.digest,
        manifest: imported.manifest,
        source,
        architecture: imported.architecture,
        created_us: crate::record::now_us(),
        layers: imported.layers,
        files: imported.files,
        bytes: imported.bytes,
        config: imported.config,
        owners: imported.owners,
        user: imported.user,
        home: imported.home,
        runs_as: imported.runs_as,
        notes: imported.notes,
        in_use: false,
        used_us: 0,
    }
}

/// After what it was taken from, where that makes a name.
fn default_name(place: &Place) -> Option<ImageName> {
    match place {
        Place::Registry(reference) => format!("{}:{}", reference.repository, reference.tag).parse().ok(),
        Place::Path(path) => {
            let stem = path.canonicalize().ok()?;
            let stem = stem.file_name()?.to_str()?.split('.').next()?.to_ascii_lowercase();
            stem.parse().ok()
        }
    }
}

/// All of it or nothing, also for who looks meanwhile.
fn write_whole(path: &Path, making: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(making)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(making, path)
}

fn lock(dir: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(dir.join("lock"))
}

/// By the time of its lock. Who cannot note it only makes it look older than it is.
fn note_use(lock: &File) {
    let _ = lock.set_modified(std::time::SystemTime::now());
}

fn used_us(lock: &File) -> Option<u64> {
    let used = lock.metadata().ok()?.modified().ok()?;
    Some(used.duration_since(std::time::UNIX_EPOCH).ok()?.as_micros() as u64)
}

fn is_held(lock: &File) -> bool {
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_err()
}
