//! The functions of a linked program, by names that stay the same from one build to the next: what a compiler adds to
//! tell versions of a crate apart depends on where it was built, so it is left out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NamesError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{0} has no table of symbols that can be read: is it stripped, or not of this machine?")]
    NoSymbols(PathBuf),
}

/// A function where it lies.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) address: u64,
    /// As the linker knows it.
    pub(crate) symbol: String,
}

/// All of a program's functions.
pub(crate) fn functions(program: &Path) -> Result<Vec<Function>, NamesError> {
    let bytes =
        std::fs::read(program).map_err(|source| NamesError::Read { path: program.to_owned(), source })?;
    symbols(&bytes).ok_or_else(|| NamesError::NoSymbols(program.to_owned()))
}

/// The symbols of a 64-bit little-endian ELF file that stand for functions.
fn symbols(elf: &[u8]) -> Option<Vec<Function>> {
    const SYMTAB: u32 = 2;
    const FUNCTION: u8 = 2;
    const CHOSEN_AT_START: u8 = 10;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, count) = (number(elf, 40, 8)? as usize, number(elf, 60, 2)? as usize);
    let section = |index: usize| elf.get(table + index * 64..table + (index + 1) * 64);
    let content = |section: &[u8]| {
        let (start, size) = (number(section, 24, 8)? as usize, number(section, 32, 8)? as usize);
        elf.get(start..start.checked_add(size)?)
    };
    let symtab = (0..count).filter_map(section).find(|s| number(s, 4, 4) == Some(SYMTAB.into()))?;
    let names = content(section(number(symtab, 40, 4)? as usize)?)?;
    let function = |entry: &[u8]| {
        let (kind, section) = (entry.get(4)? & 15, number(entry, 6, 2)?);
        let name = names.get(number(entry, 0, 4)? as usize..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let (address, size) = (number(entry, 8, 8)?, number(entry, 16, 8)?);
        let is_one = matches!(kind, FUNCTION | CHOSEN_AT_START) && section != 0 && size > 0;
        is_one.then(|| Function { address, symbol: String::from_utf8_lossy(name).into_owned() })
    };
    Some(content(symtab)?.chunks_exact(24).filter_map(function).collect())
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// What it is called in every build. A generic function has an instance in every crate that uses it, so that crate is a
/// part of its name; the arguments of some would fill a page, and their beginning tells enough.
pub(crate) fn lasting(symbol: &str) -> String {
    const ENOUGH: usize = 140;
    let mut name = format!("{:#}", rustc_demangle::demangle(symbol));
    if let Some((end, _)) = name.char_indices().nth(ENOUGH) {
        name.truncate(end);
        name.push('…');
    }
    match user(symbol) {
        Some(user) => format!("{name} in {user}"),
        None => name,
    }
}

/// The crate that an instance was made for. It stands at the end of a symbol of the second kind of mangling, spelled
/// out or as the place where it has been spelled out before.
fn user(symbol: &str) -> Option<&str> {
    let symbol = symbol.strip_prefix("_R")?;
    let symbol = symbol.split_once('.').map_or(symbol, |(symbol, _)| symbol);
    let (_, last) = symbol.strip_suffix('_').and_then(|rest| rest.rsplit_once('B')).unzip();
    let at = match last.and_then(base_62) {
        Some(place) => place,
        None => symbol.rfind("Cs")?,
    };
    let (_, named) = symbol.get(at..)?.strip_prefix("Cs")?.split_once('_')?;
    let digits = named.find(|c: char| !c.is_ascii_digit())?;
    let (length, name) = named.split_at(digits);
    let name = name.strip_prefix('_').unwrap_or(name).get(..length.parse().ok()?)?;
    // Spelled out, it is the last thing in the symbol; else the symbol ends with a function's own path.
    (last.is_some() || symbol.ends_with(name)).then_some(name)
}

/// Nothing is 0, and every number is one less than it is.
fn base_62(digits: &str) -> Option<usize> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'z' => Some(c - b'a' + 10),
        b'A'..=b'Z' => Some(c - b'A' + 36),
        _ => None,
    };
    let number = digits
        .bytes()
        .try_fold(0usize, |number, c| number.checked_mul(62)?.checked_add(usize::from(digit(c)?)))?;
    Some(if digits.is_empty() { 0 } else { number + 1 })
}

/// The symbols that a list of lasting names stands for, in its order, and how many names stand for none. A name can
/// stand for several, where two versions of a crate are in one program.
pub(crate) fn resolve(list: &str, functions: &[Function]) -> (Vec<String>, usize) {
    let mut known: HashMap<String, Vec<&str>> = HashMap::new();
    for function in functions {
        known.entry(lasting(&function.symbol)).or_default().push(&function.symbol);
    }
    let (mut found, mut stale) = (Vec::new(), 0);
    for name in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match known.remove(name) {
            Some(symbols) => found.extend(symbols.into_iter().map(str::to_owned)),
            None => stale += 1,
        }
    }
    (found, stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(symbol: &str) -> Function {
        Function { address: 0, symbol: symbol.into() }
    }

    #[test]
    fn a_name_lasts_whatever_its_crate_was_built_as() {
        let check = |symbol: &str, expected: &str| assert_eq!(lasting(symbol), expected);
        check("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar");
        check("_RNvNtCsaB9_7mycrate3foo3bar", "mycrate::foo::bar");
        check("_ZN7mycrate3foo17h0123456789abcdefE", "mycrate::foo");
        check("_RNCNvCs1234_7mycrate3foo0B3_", "mycrate::foo::{closure#0} in mycrate");
        check("_RNvNtCs1234_7mycrate3foo3bar.llvm.99", "mycrate::foo::bar");
        check("memcpy", "memcpy");
    }

    #[test]
    fn instances_are_told_apart_by_their_users() {
        let check = |symbol: &str, expected: &str| assert_eq!(lasting(symbol), expected);
        check("_RINvCs12_1a1fhECs34_4user", "a::f::<u8> in user");
        check("_RINvCs12_1a1fhEB2_", "a::f::<u8> in a");
        check("_RINvCs12_1a1fNtCs34_4user1TEBd_", "a::f::<user::T> in user");
        let long = format!("_RNvCs12_1a200{}", "x".repeat(200));
        check(&long, &format!("a::{}…", "x".repeat(137)));
    }

    #[test]
    fn a_list_is_resolved_in_its_order_and_what_is_gone_is_counted() {
        let functions = [function("_RNvCs12_1a1f"), function("memcpy"), function("_RNvCs34_1a1f")];
        let (found, stale) = resolve("# why\n\nmemcpy\nno::such\na::f\nmemcpy\n", &functions);
        assert_eq!(found, ["memcpy", "_RNvCs12_1a1f", "_RNvCs34_1a1f"]);
        assert_eq!(stale, 2);
    }

    #[test]
    fn this_program_has_functions_and_its_source_has_none() {
        let this = functions(&std::env::current_exe().unwrap()).unwrap();
        assert!(this.iter().any(|f| f.symbol == "main" && f.address > 0));
        let error = functions(Path::new(file!()).file_name().unwrap().as_ref()).unwrap_err();
        assert!(matches!(error, NamesError::Read { .. }));
        assert_eq!(symbols(b"\x7fELF\x02\x01 and no more"), None);
        assert_eq!(symbols(b"#!/bin/sh\n"), None);
    }
}
