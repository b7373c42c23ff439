//! Why a module cannot be run at all. How a run ended is no error: see [`crate::How`].

#[derive(Debug, thiserror::Error)]
pub enum WasmError {
    #[error("it is no WebAssembly module: a module in its binary form (`.wasm`) is needed")]
    NotWasm,
    #[error("it is a component, and a module is needed: build it for wasm32-wasip1 (wasm32-wasi)")]
    Component,
    #[error("it has {0} bytes, and the most is {most}: strip it (`wasm-strip`, `-Wl,--strip-all`)", most = crate::LARGEST)]
    TooLarge(u64),
    #[error("it is no valid module: {0}")]
    Invalid(String),
    #[error(
        "it imports `{module}.{name}`, and only `wasi_snapshot_preview1` is there: build it as a command for wasm32-wasip1 (wasm32-wasi), without a host of its own"
    )]
    Import { module: String, name: String },
    #[error("it imports `{0}` of WASI in a form that WASI does not have: build it with another toolchain")]
    ImportForm(String),
    #[error("it exports no function `_start` without parameters: build it as a command, with a `main`")]
    NoStart,
    #[error("it exports no memory with the name `memory`, by which WASI reads and writes")]
    NoMemory,
    #[error("WASI cannot be given to it: {0}")]
    Link(String),
}
