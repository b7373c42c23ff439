//! The linker of the shipped binary: it links once to see which functions there are, and once more with those that a
//! run enters next to each other. Spread over the whole program each of them costs a page fault of its own, and all that the
//! kernel maps around it has to be unmapped before whoever waits for the program hears of its end.
//!
//! It is this tool, called by rustc, so that the optimised objects are there for both. A linker that cannot take an order, and a
//! list that has grown stale, make a slower program and no failure.

use super::{names, order};
use crate::command::{self, CommandError};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Set where this tool is called as a linker: the list.
pub(crate) const LIST: &str = "COFFERDAM_LINK_ORDER";
/// Where what was done is told: rustc keeps what a linker says to itself.
pub(crate) const TOLD: &str = "COFFERDAM_LINK_TOLD";
/// Set where the list is to be written first: what tells which functions a program enters.
pub(crate) const TRACER: &str = "COFFERDAM_LINK_TRACER";

/// What rustc calls where it is told of no other.
const LINKER: &str = "cc";
const STRIPPED: &str = "-Wl,--strip-all";

/// As a linker, if that is what we are called for.
pub(crate) fn role() -> Option<ExitCode> {
    let list = std::env::var_os(LIST)?;
    let tracer = std::env::var_os(TRACER);
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let told = link(Path::new(&list), tracer.as_ref().map(Path::new), &args).and_then(|told| {
        let place = std::env::var_os(TOLD);
        place.map_or(Ok(()), |place| std::fs::write(place, told).map_err(Into::into))
    });
    Some(match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    })
}

fn link(list: &Path, tracer: Option<&Path>, args: &[OsString]) -> Result<String, Box<dyn std::error::Error>> {
    let out =
        output(args).ok_or("called as a linker without `-o`; is this rustc newer than the workspace?")?;
    run(args, &[])?;
    let functions = names::functions(&out)?;
    if let Some(tracer) = tracer {
        order::take(list, &out, &functions, tracer)?;
    }
    let (order, stale) = names::resolve(&std::fs::read_to_string(list)?, &functions);
    let (count, all, file) = (order.len(), functions.len(), out.with_extension("order"));
    std::fs::write(&file, order.join("\n") + "\n")?;
    let ordered = format!("-Wl,--symbol-ordering-file={}", file.display());
    let linked = run(args, &[&ordered, "-Wl,--no-warn-symbol-ordering", STRIPPED]);
    std::fs::remove_file(&file)?;
    match linked {
        Ok(()) => Ok(format!(
            "{count} of {all} functions lie in the order of the list, of which {stale} names are not there"
        )),
        Err(error) => {
            run(args, &[STRIPPED])?;
            Ok(format!("functions lie as they come, since the linker takes no order: {error}"))
        }
    }
}

fn output(args: &[OsString]) -> Option<PathBuf> {
    let at = args.iter().position(|word| word == "-o")?;
    args.get(at + 1).map(PathBuf::from)
}

fn run(args: &[OsString], more: &[&str]) -> Result<(), CommandError> {
    let mut linker = Command::new(LINKER);
    linker.args(args).args(more);
    command::stdout(&mut linker).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links a program of two functions with such a list, and returns what was told and where they are in the linker's map.
    fn linked(list: &str, linker: &[OsString]) -> (String, Option<[usize; 2]>) {
        let dir = tempfile::tempdir().unwrap();
        let (source, list_at, map) =
            (dir.path().join("a.c"), dir.path().join("list"), dir.path().join("map"));
        std::fs::write(&source, "int first(void) { return 0; }\nint main(void) { return first(); }\n")
            .unwrap();
        std::fs::write(&list_at, list).unwrap();
        let out = dir.path().join("a.out");
        let mut words: Vec<OsString> = vec!["-ffunction-sections".into(), "-o".into(), out.clone().into()];
        words.extend([source.into(), format!("-Wl,-Map={}", map.display()).into()]);
        words.extend_from_slice(linker);
        let told = link(&list_at, None, &words).unwrap();
        assert!(names::functions(&out).is_err(), "names are left in what is shipped");
        assert!(Command::new(&out).status().unwrap().success());
        let map = std::fs::read_to_string(map).unwrap();
        let at = |name: &str| map.find(&format!("(.text.{name})"));
        (told, at("first").zip(at("main")).map(Into::into))
    }

    #[test]
    fn functions_lie_in_the_order_of_the_list() {
        let sysroot = command::stdout(Command::new("rustc").args(["--print", "sysroot"])).unwrap();
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let ours = Path::new(sysroot.trim()).join("lib/rustlib").join(triple).join("bin/gcc-ld");
        let lld = [format!("-B{}", ours.display()).into(), "-fuse-ld=lld".into()];
        let check = |list: &str, expected: (&str, &str), first_is_first: bool| {
            let (told, at) = linked(list, &lld);
            assert!(told.starts_with(expected.0) && told.ends_with(expected.1), "{told}");
            assert!(at.is_some_and(|[first, main]| (first < main) == first_is_first), "{list}: {at:?}");
        };
        check("first\nmain\n", ("2 of ", " 0 names are not there"), true);
        check("main\nfirst\n", ("2 of ", " 0 names are not there"), false);
        check("main\nlast\n", ("1 of ", " 1 names are not there"), false);
    }

    #[test]
    fn a_linker_without_orders_links_all_the_same() {
        let (told, _) = linked("main\n", &["-fuse-ld=bfd".into()]);
        assert!(told.starts_with("functions lie as they come"), "{told}");
    }
}
