//! The kernel that machines boot, and what it boots with: the distribution's own package or a user's choice, made
//! into a form that needs no boot loader.

mod cpio;
mod modules;
mod unpack;

use cofferdam_runtime::{RuntimeError, guest_program};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names a kernel (`vmlinuz` or `vmlinux`) to boot instead of the distribution's.
pub(crate) const KERNEL: &str = "COFFERDAM_VM_KERNEL";
/// Names the directory of its modules, where that is not `/lib/modules/RELEASE`.
pub(crate) const MODULES: &str = "COFFERDAM_VM_MODULES";

const FIX: &str = "sudo apt-get install linux-image-cloud-amd64, or name a kernel with COFFERDAM_VM_KERNEL";

/// The program that makes the inside, ready to be put into the files that a kernel starts with.
pub(crate) fn inside_program() -> &'static [u8] {
    // Once in the program, wherever it is used: a constant would be there several times.
    static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cofferdam-inside"));
    PROGRAM
}

/// A kernel with its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// Nothing where all that is needed is built in.
    pub(crate) modules: Option<PathBuf>,
}

pub(crate) fn refused(what: impl Into<String>, fix: impl Into<String>) -> RuntimeError {
    RuntimeError::Refused { what: what.into(), fix: fix.into() }
}

impl Kernel {
    pub(crate) fn find(env: impl Fn(&str) -> Option<PathBuf>) -> Result<Self, RuntimeError> {
        if !cfg!(target_arch = "x86_64") {
            let what = "machines are booted on x86_64 only";
            return Err(refused(what, "use another tier with `--isolation`"));
        }
        match env(KERNEL) {
            Some(image) => Self::named(image, env(MODULES)),
            None => Self::packaged(Path::new("/boot"), Path::new("/lib/modules")),
        }
    }

    /// What it is, by its bytes.
    pub(crate) fn digest(&self) -> Result<String, RuntimeError> {
        let bytes = fs::read(&self.image)
            .map_err(RuntimeError::io(format!("read the kernel {}", self.image.display())))?;
        Ok(cofferdam_seal::digest(&bytes).to_string())
    }

    fn named(image: PathBuf, modules: Option<PathBuf>) -> Result<Self, RuntimeError> {
        let bytes = fs::read(&image)
            .map_err(|error| refused(format!("cannot read the kernel {}: {error}", image.display()), FIX))?;
        let release = unpack::release(&bytes).unwrap_or_else(|| "unknown".into());
        let usual = PathBuf::from("/lib/modules").join(&release);
        let modules = modules.or_else(|| usual.is_dir().then_some(usual));
        Ok(Self { release, image, modules })
    }

    /// The newest that can be read and whose modules are there; one that is made for clouds before all others.
    fn packaged(boot: &Path, lib: &Path) -> Result<Self, RuntimeError> {
        let names = fs::read_dir(boot).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut found: Vec<Self> = names
            .filter_map(|name| {
                let release = name.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
                let (image, modules) = (boot.join(&name), lib.join(&release));
                let readable = fs::File::open(&image).is_ok() && modules.join("modules.dep").is_file();
                readable.then_some(Self { release, image, modules: Some(modules) })
            })
            .collect();
        found.sort_by_key(|kernel| (kernel.release.contains("cloud"), numbers(&kernel.release)));
        found.pop().ok_or_else(|| refused("no kernel for a machine is installed", FIX))
    }

    /// Writes down the kernel without its wrapping, and what it is started with.
    pub(crate) fn unpack(&self, kernel: &Path, initrd: &Path) -> Result<(), RuntimeError> {
        let wrapped = fs::read(&self.image)
            .map_err(RuntimeError::io(format!("read the kernel {}", self.image.display())))?;
        let bytes = unpack::kernel(&wrapped).map_err(|what| {
            refused(format!("the kernel {} cannot be used: {what}", self.image.display()), FIX)
        })?;
        write(kernel, &bytes)?;
        let mut archive = cpio::Archive::default();
        for dir in ["dev", "root", "modules"] {
            archive.dir(dir);
        }
        archive.file("init", guest_program(), true);
        archive.file("program", inside_program(), true);
        let loaded = match &self.modules {
            Some(dir) => modules::collect(dir)?,
            None => Vec::new(),
        };
        let mut order = String::new();
        for (name, bytes) in &loaded {
            archive.file(&format!("modules/{name}"), bytes, false);
            order.push_str(&format!("{name}\n"));
        }
        archive.file("modules/order", order.as_bytes(), false);
        write(initrd, &archive.finish())
    }
}

/// Readable by everyone who is handed it: a VMM opens it again, as another user.
fn write(path: &Path, bytes: &[u8]) -> Result<(), RuntimeError> {
    fs::write(path, bytes)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .map_err(RuntimeError::io(format!("write {}", path.display())))
}

fn numbers(release: &str) -> Vec<u32> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_for_clouds_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (boot, lib) = (dir.path().join("boot"), dir.path().join("lib"));
        fs::create_dir_all(&boot).unwrap();
        let check = |expected: Result<&str, &str>| match (Kernel::packaged(&boot, &lib), expected) {
            (Ok(kernel), Ok(release)) => assert_eq!(kernel.release, release),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{found:?} and not {expected:?}"),
        };
        check(Err("no kernel for a machine is installed"));
        for release in ["6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64", "6.12.1-amd64", "6.20.0-cloud-amd64"] {
            fs::write(boot.join(format!("vmlinuz-{release}")), "x").unwrap();
            if !release.starts_with("6.20") {
                fs::create_dir_all(lib.join(release)).unwrap();
                fs::write(lib.join(release).join("modules.dep"), "").unwrap();
            }
        }
        check(Ok("6.1.0-10-cloud-amd64"));
    }
}
