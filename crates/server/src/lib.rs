//! The service: E2B's wire protocol for its published SDKs and our own REST, on one address. The process that serves
//! also holds the sessions: there is no second one. Nothing here prints; what is to be told is handed to the caller.

mod app;
mod asked;
mod auth;
mod body;
mod build;
mod config;
mod disk;
mod e2b;
mod egress;
mod envd;
mod guard;
mod health;
mod interpreter;
mod keys;
mod life;
mod listen;
mod log;
mod mcp;
mod owners;
mod plan;
mod port;
mod proxy;
mod rest;
mod route;
mod sandbox;
mod serve;
mod snapshot;
mod template;
mod time;
mod tls;
mod volume;
mod volume_files;

pub use config::{Config, ConfigError};
pub use keys::{Key, KeyKind, Keys, KeysError, NewKey};
pub use log::{Level, Line, Tell};
pub use mcp::{ToolSandbox, serve_tools};
pub use serve::{ServeError, Started, serve};
pub use tls::TlsError;
