//! The part of WASI's first preview that a program needs which reads, computes and writes: its arguments, an empty
//! environment, three streams, a clock that only moves on, numbers that only look like chance. Everything else that WASI
//! knows answers "not there" (`ENOSYS`), so that what a C library merely links does no harm; what WASI does not know is
//! refused before anything runs.

use crate::bounds::Bounds;
use crate::error::WasmError;
use crate::run::Call;
use wasmi::errors::HostError;
use wasmi::{Caller, Error, Extern, ExternType, FuncType, Linker, Memory, Module, Val, ValType};

const WASI: &str = "wasi_snapshot_preview1";
const MEMORY: &str = "memory";

const SUCCESS: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const NOSYS: i32 = 52;
const SPIPE: i32 = 70;

/// More pieces than this in one call to read or write are no program's.
const PIECES: u32 = 1024;
/// What a read of the clock moves it by, in nanoseconds: whoever waits for time to pass is not kept waiting.
const TICK: u64 = 1_000_000;

/// What WASI has besides, by name: linked, and answered with "not there".
const ABSENT: &[&str] = &[
    "fd_advise",
    "fd_allocate",
    "fd_datasync",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_pwrite",
    "fd_readdir",
    "fd_renumber",
    "fd_sync",
    "fd_tell",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_raise",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];

/// It wrote more than it may.
#[derive(Debug, thiserror::Error)]
#[error("its output is too long")]
pub(crate) struct Full;

impl HostError for Full {}

/// What one run has.
pub(crate) struct State {
    args: Vec<Vec<u8>>,
    input: Vec<u8>,
    /// How much of the input was read.
    at: usize,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
    most: u64,
    clock: u64,
    chance: u64,
    pub(crate) bounds: Bounds,
}

impl State {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        // of FNV: any function of the input will do, as long as it is one
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self {
            args: call.args.iter().map(|arg| arg.bytes().filter(|b| *b != 0).chain([0]).collect()).collect(),
            chance: call.input.iter().fold(0xcbf2_9ce4_8422_2325, mix),
            input: call.input.to_vec(),
            at: 0,
            output: Vec::new(),
            errors: Vec::new(),
            most: call.limits.output,
            clock: 0,
            bounds: Bounds::new(call.limits.memory),
        }
    }

    /// The next number of the sequence that this input has (SplitMix64).
    fn next(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

type Host<'a> = Caller<'a, State>;
/// What became of a call, or the error that WASI has for it.
type Reached<T> = Result<T, i32>;

/// Links what is there and what is said not to be; refuses what is neither.
pub(crate) fn provide(linker: &mut Linker<State>, module: &Module) -> Result<(), WasmError> {
    let failed = |error: Error| WasmError::Link(error.to_string());
    link(linker).map_err(failed)?;
    // a module may import one function twice
    linker.allow_shadowing(true);
    for import in module.imports() {
        let (from, name) = (import.module(), import.name());
        let unknown = || WasmError::Import { module: from.to_owned(), name: name.to_owned() };
        let ExternType::Func(form) = import.ty() else { return Err(unknown()) };
        if from != WASI {
            return Err(unknown());
        }
        if let Some((_, expected)) = PROVIDED.iter().find(|(known, _)| *known == name) {
            if form_of(form) != *expected {
                return Err(WasmError::ImportForm(name.to_owned()));
            }
            continue;
        }
        if !ABSENT.contains(&name) {
            return Err(unknown());
        }
        if form.results() != [ValType::I32] {
            return Err(WasmError::ImportForm(name.to_owned()));
        }
        let linked = linker.func_new(WASI, name, form.clone(), |_, _, results| {
            results.iter_mut().for_each(|result| *result = Val::I32(NOSYS));
            Ok(())
        });
        linked.map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

/// A function's type in the letters of `PROVIDED`.
fn form_of(form: &FuncType) -> String {
    let letter = |one: &ValType| match one {
        ValType::I32 => 'i',
        ValType::I64 => 'I',
        _ => '?',
    };
    form.params().iter().map(letter).chain(['>']).chain(form.results().iter().map(letter)).collect()
}

/// A program has a beginning, and a memory in which it says what it wants.
pub(crate) fn check_start(module: &Module) -> Result<(), WasmError> {
    let starts = |form: ExternType| match form {
        ExternType::Func(form) => form.params().is_empty() && form.results().is_empty(),
        _ => false,
    };
    if !module.get_export("_start").is_some_and(starts) {
        return Err(WasmError::NoStart);
    }
    let talks = module.imports().any(|import| import.module() == WASI && import.name() != "proc_exit");
    let memory = matches!(module.get_export(MEMORY), Some(ExternType::Memory(_)));
    if talks && !memory { Err(WasmError::NoMemory) } else { Ok(()) }
}

/// What is there, with its parameters and its result: `i` of 32 bits, `I` of 64.
const PROVIDED: &[(&str, &str)] = &[
    ("args_get", "ii>i"),
    ("args_sizes_get", "ii>i"),
    ("clock_res_get", "ii>i"),
    ("clock_time_get", "iIi>i"),
    ("environ_get", "ii>i"),
    ("environ_sizes_get", "ii>i"),
    ("fd_close", "i>i"),
    ("fd_fdstat_get", "ii>i"),
    ("fd_prestat_dir_name", "iii>i"),
    ("fd_prestat_get", "ii>i"),
    ("fd_read", "iiii>i"),
    ("fd_seek", "iIii>i"),
    ("fd_write", "iiii>i"),
    ("proc_exit", "i>"),
    ("random_get", "ii>i"),
    ("sched_yield", ">i"),
];

fn link(linker: &mut Linker<State>) -> Result<(), Error> {
    linker.func_wrap(WASI, "args_sizes_get", |mut host: Host<'_>, count: u32, size: u32| {
        errno(args_sizes(&mut host, count, size))
    })?;
    linker.func_wrap(WASI, "args_get", |mut host: Host<'_>, list: u32, text: u32| {
        errno(args(&mut host, list, text))
    })?;
    linker.func_wrap(WASI, "environ_sizes_get", |mut host: Host<'_>, count: u32, size: u32| {
        errno(put(&mut host, count, &[0; 4]).and_then(|()| put(&mut host, size, &[0; 4])))
    })?;
    linker.func_wrap(WASI, "environ_get", |_: u32, _: u32| SUCCESS)?;
    linker.func_wrap(WASI, "clock_res_get", |mut host: Host<'_>, _: u32, out: u32| {
        errno(put(&mut host, out, &TICK.to_le_bytes()))
    })?;
    linker.func_wrap(WASI, "clock_time_get", |mut host: Host<'_>, _: u32, _: u64, out: u32| {
        host.data_mut().clock += TICK;
        let now = host.data().clock.to_le_bytes();
        errno(put(&mut host, out, &now))
    })?;
    linker.func_wrap(WASI, "random_get", |mut host: Host<'_>, at: u32, len: u32| {
        errno(random(&mut host, at, len))
    })?;
    linker.func_wrap(WASI, "sched_yield", || SUCCESS)?;
    linker.func_wrap(WASI, "proc_exit", |code: i32| -> Result<(), Error> { Err(Error::i32_exit(code)) })?;
    linker.func_wrap(WASI, "fd_close", |fd: u32| if fd < 3 { SUCCESS } else { BADF })?;
    linker.func_wrap(WASI, "fd_seek", |fd: u32, _: u64, _: u32, _: u32| if fd < 3 { SPIPE } else { BADF })?;
    // no directory was opened for it: that is how a C library learns it
    linker.func_wrap(WASI, "fd_prestat_get", |_: u32, _: u32| BADF)?;
    linker.func_wrap(WASI, "fd_prestat_dir_name", |_: u32, _: u32, _: u32| BADF)?;
    linker.func_wrap(WASI, "fd_fdstat_get", |mut host: Host<'_>, fd: u32, out: u32| {
        errno(if fd < 3 { put(&mut host, out, &fdstat(fd)) } else { Err(BADF) })
    })?;
    linker.func_wrap(WASI, "fd_read", |mut host: Host<'_>, fd: u32, list: u32, count: u32, out: u32| {
        errno(read(&mut host, fd, (list, count), out))
    })?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut host: Host<'_>, fd: u32, list: u32, count: u32, out: u32| -> Result<i32, Error> {
            match write(&mut host, fd, (list, count), out) {
                Ok(true) => Ok(SUCCESS),
                Ok(false) => Err(Error::host(Full)),
                Err(errno) => Ok(errno),
            }
        },
    )?;
    Ok(())
}

fn errno(done: Reached<()>) -> i32 {
    done.err().unwrap_or(SUCCESS)
}

/// A stream that is neither a file nor a terminal, and what may be done with it.
fn fdstat(fd: u32) -> [u8; 24] {
    const READ: u64 = 1 << 1;
    const WRITE: u64 = 1 << 6;
    let mut stat = [0; 24];
    stat[8..16].copy_from_slice(&if fd == 0 { READ } else { WRITE }.to_le_bytes());
    stat
}

fn memory(host: &Host<'_>) -> Reached<Memory> {
    host.get_export(MEMORY).and_then(Extern::into_memory).ok_or(FAULT)
}

fn span(at: u32, len: usize) -> Reached<std::ops::Range<usize>> {
    let at = usize::try_from(at).map_err(|_| FAULT)?;
    Ok(at..at.checked_add(len).ok_or(FAULT)?)
}

fn put(host: &mut Host<'_>, at: u32, bytes: &[u8]) -> Reached<()> {
    let memory = memory(host)?;
    let (data, _) = memory.data_and_store_mut(host);
    data.get_mut(span(at, bytes.len())?).ok_or(FAULT)?.copy_from_slice(bytes);
    Ok(())
}

fn args_sizes(host: &mut Host<'_>, count: u32, size: u32) -> Reached<()> {
    let args = &host.data().args;
    let (n, bytes) = (args.len(), args.iter().map(Vec::len).sum::<usize>());
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    put(host, count, &small(n))?;
    put(host, size, &small(bytes))
}

fn args(host: &mut Host<'_>, list: u32, text: u32) -> Reached<()> {
    let (mut list, mut text) = (list, text);
    for arg in host.data().args.clone() {
        put(host, list, &text.to_le_bytes())?;
        put(host, text, &arg)?;
        list = list.checked_add(4).ok_or(FAULT)?;
        text = u32::try_from(arg.len()).ok().and_then(|len| text.checked_add(len)).ok_or(FAULT)?;
    }
    Ok(())
}

/// What is done for a module counts as its own work, or a loop of calls would outlast its time.
fn charge(host: &mut Host<'_>, work: u64) {
    let left = host.get_fuel().unwrap_or(0);
    // without fuel there is nothing to charge, and nothing that could be charged too much
    let _ = host.set_fuel(left.saturating_sub(work));
}

fn random(host: &mut Host<'_>, at: u32, len: u32) -> Reached<()> {
    charge(host, u64::from(len) / 8);
    let memory = memory(host)?;
    let (data, state) = memory.data_and_store_mut(host);
    let wanted = data.get_mut(span(at, len as usize)?).ok_or(FAULT)?;
    for chunk in wanted.chunks_mut(8) {
        let bytes = state.next().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    Ok(())
}

/// The pieces that a list in the module's memory names, each within that memory.
fn pieces(data: &[u8], (list, count): (u32, u32)) -> Reached<Vec<std::ops::Range<usize>>> {
    if count > PIECES {
        return Err(INVAL);
    }
    let list = data.get(span(list, count as usize * 8)?).ok_or(FAULT)?;
    let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).map_err(|_| FAULT);
    list.chunks_exact(8)
        .map(|piece| {
            let range = span(number(&piece[..4])?, number(&piece[4..])? as usize)?;
            if range.end <= data.len() { Ok(range) } else { Err(FAULT) }
        })
        .collect()
}

fn read(host: &mut Host<'_>, fd: u32, list: (u32, u32), out: u32) -> Reached<()> {
    if fd != 0 {
        return Err(BADF);
    }
    charge(host, u64::from(list.1));
    let memory = memory(host)?;
    let (data, state) = memory.data_and_store_mut(&mut *host);
    let mut done = 0;
    for piece in pieces(data, list)? {
        let rest = &state.input[state.at..];
        let n = rest.len().min(piece.len());
        data[piece.start..piece.start + n].copy_from_slice(&rest[..n]);
        state.at += n;
        done += n;
    }
    put(host, out, &u32::try_from(done).unwrap_or(u32::MAX).to_le_bytes())
}

/// Whether it fitted.
fn write(host: &mut Host<'_>, fd: u32, list: (u32, u32), out: u32) -> Reached<bool> {
    charge(host, u64::from(list.1));
    let memory = memory(host)?;
    let (data, state) = memory.data_and_store_mut(&mut *host);
    let into = match fd {
        1 => &mut state.output,
        2 => &mut state.errors,
        _ => return Err(BADF),
    };
    let mut done = 0;
    for piece in pieces(data, list)? {
        if (into.len() + piece.len()) as u64 > state.most {
            return Ok(false);
        }
        done += piece.len();
        into.extend_from_slice(&data[piece]);
    }
    put(host, out, &u32::try_from(done).unwrap_or(u32::MAX).to_le_bytes())?;
    Ok(true)
}
