//! WebAssembly modules as programs that can read one input, compute, and write one output. A module is given no file, no
//! socket, no clock that tells the time and no chance: the same module and the same input give the same output on every
//! machine. How long it computes, how much memory it has and how much it may write is limited from outside of it.
//! It refuses whatever asks for more before any of it runs. Modules are interpreted: no code of theirs is ever the
//! processor's.

mod bounds;
mod error;
mod run;
mod wasi;

pub use error::WasmError;
pub use run::{Call, Ended, How, Limits};

use wasi::State;
use wasmi::{Config, Engine, Linker, Module};

/// Larger modules are refused unread: what they could hold besides code belongs into the input.
pub const LARGEST: u64 = 32 << 20;
/// A module's own calls: deeper is a recursion without an end.
const DEEPEST: usize = 10_000;
const STACK: usize = 4 << 20;

/// A module, checked and joined with the little that it may ask for. It can be run any number of times, on any thread.
#[derive(Clone)]
pub struct Program {
    engine: Engine,
    module: Module,
    linker: Linker<State>,
}

impl Program {
    /// From the bytes of a module in its binary form.
    pub fn compile(bytes: &[u8]) -> Result<Self, WasmError> {
        check_form(bytes)?;
        let engine = Engine::new(&config());
        let module = Module::new(&engine, bytes).map_err(|error| WasmError::Invalid(error.to_string()))?;
        let mut linker = Linker::new(&engine);
        wasi::provide(&mut linker, &module)?;
        wasi::check_start(&module)?;
        Ok(Self { engine, module, linker })
    }
}

/// The first eight bytes say what it is: that is worth a better answer than a parser's.
fn check_form(bytes: &[u8]) -> Result<(), WasmError> {
    const MAGIC: &[u8] = b"\0asm";
    if bytes.len() as u64 > LARGEST {
        return Err(WasmError::TooLarge(bytes.len() as u64));
    }
    match bytes.strip_prefix(MAGIC) {
        Some([1, 0, 0, 0, ..]) => Ok(()),
        Some([_, 0, 1, 0, ..]) => Err(WasmError::Component),
        _ => Err(WasmError::NotWasm),
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        // whatever runs is asked for by name, and can be ended
        .allow_start_fn(false)
        .ignore_custom_sections(true)
        .set_max_recursion_depth(DEEPEST)
        .set_max_stack_height(STACK)
        // the same bits on every machine
        .wasm_relaxed_simd(false)
        // one memory, of 32 bits, is what compilers make and what the limits are about
        .wasm_multi_memory(false);
    config
}

#[cfg(test)]
mod tests;
